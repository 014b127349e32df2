-- Finishes attempts that this session registered for this destination with exactly these members.
--
-- $1 session, $2 destination, $3 attempts, $4 acknowledged, $5 exceptions, $6 and $7 the runs of
-- all members, flat, $8 and $9 each attempt's first and last run in them, $10 now.
-- Raises PR011 if one of them is finished already, or is not such an attempt.
with given as (
    select * from unnest($3::uuid[], $4::integer[], $5::integer[], $8::integer[], $9::integer[])
        as g(attempt_id, acknowledged, exceptions, run_from, run_to)
),
closed as (
    delete from {schema}.open_attempts o
    using given g, {schema}.attempts a
    where o.attempt_id = g.attempt_id and a.attempt_id = g.attempt_id
        and a.session_id = $1::uuid and a.destination_id = $2::integer
        and a.run_starts = ($6::bigint[])[g.run_from:g.run_to]
        and a.run_lengths = ($7::integer[])[g.run_from:g.run_to]
    returning g.attempt_id, g.acknowledged, g.exceptions
),
finished as (
    insert into {schema}.attempt_finishes (attempt_id, finished_at, reason, acknowledged, exceptions)
    select attempt_id, coalesce($10::timestamptz, clock_timestamp()), 'settled', acknowledged, exceptions
    from closed
    returning 1
)
select {schema}.expect_rows((select count(*) from finished), cardinality($3::uuid[]), 'PR011')
