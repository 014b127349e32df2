-- Wins the publish slot, if it is free. $1 destination, $2 position. A quarantine that waited for
-- a person is over.
with closed as (
    delete from {schema}.deliveries
    where destination_id = $1::integer and position = $2::bigint
    returning key_hash, waited, state
),
resolved as (
    update {schema}.quarantine q
    set resolved_at = coalesce($3::timestamptz, clock_timestamp()), resolved_by = 'receipt'
    from closed
    where q.destination_id = $1::integer and q.position = $2::bigint and q.resolved_at is null
        and closed.state = 2
)
select key_hash, waited from closed
