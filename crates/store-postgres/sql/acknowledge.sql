-- Wins the publish slots: deletes the open rows of acknowledged members, in position order.
--
-- $1 destination, $2 and $3 first and last position of each run, $4 how many members they hold.
-- A run is deleted by range because every integer in it is a member; a position between runs may
-- be an event that is not committed yet, and is never touched.
-- Raises PR011 if a row was gone, or was no longer pending: then its receipt needs more care.
with closed as (
    delete from {schema}.deliveries d
    using unnest($2::bigint[], $3::bigint[]) as run(first, last)
    where d.destination_id = $1::integer and d.position between run.first and run.last
    returning d.state
)
select {schema}.expect_rows((select count(*) from closed where state = 0), $4::bigint, 'PR011')
