-- Registers attempts; durable with this transaction (I4). Fails on an id that is registered.
--
-- $1 session, $2 destination, $3 attempts, $4 and $5 the runs of all members, flat, $6 and $7
-- each attempt's first and last run in them, $8 now.
with given as (
    select * from unnest($3::uuid[], $6::integer[], $7::integer[]) as g(attempt_id, run_from, run_to)
),
registered as (
    insert into {schema}.attempts (
        attempt_id, session_id, destination_id, registered_at, run_starts, run_lengths,
        first_position, last_position
    )
    select attempt_id, $1::uuid, $2::integer, coalesce($8::timestamptz, clock_timestamp()),
        ($4::bigint[])[run_from:run_to], ($5::integer[])[run_from:run_to],
        ($4::bigint[])[run_from], ($4::bigint[])[run_to] + ($5::integer[])[run_to] - 1
    from given
)
insert into {schema}.open_attempts (attempt_id, session_id, destination_id)
select attempt_id, $1::uuid, $2::integer from given
