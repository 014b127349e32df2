-- Keeps primary receipts, packed.
--
-- $1 destination, $2 attempts, $3 shared parts, $4 and $5 each row's first and last run in the
-- flat runs, $6 whether its receipts have numbers, $7 run starts, $8 run lengths, $9 run numbers,
-- $10 now, $11 whether they came by the evidence path.
insert into {schema}.receipt_batches (
    attempt_id, destination_id, accepted_at, shared, run_starts, run_lengths, run_numbers,
    first_position, last_position, late
)
select g.attempt_id, $1::integer, coalesce($10::timestamptz, clock_timestamp()), g.shared,
    ($7::bigint[])[g.run_from:g.run_to], ($8::integer[])[g.run_from:g.run_to],
    case when g.numbered then ($9::bigint[])[g.run_from:g.run_to] end,
    ($7::bigint[])[g.run_from], ($7::bigint[])[g.run_to] + ($8::integer[])[g.run_to] - 1,
    $11::boolean
from unnest($2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::boolean[])
    as g(attempt_id, shared, run_from, run_to, numbered)
