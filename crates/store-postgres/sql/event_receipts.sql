-- $1 position. Primary receipts of all destinations.
select b.destination_id, b.attempt_id, b.accepted_at, b.shared,
    b.run_numbers[run.n] + ($1::bigint - run.first) as number, b.late
from {schema}.receipt_batches b
cross join lateral unnest(b.run_starts, b.run_lengths) with ordinality as run(first, length, n)
where int8range(b.first_position, b.last_position, '[]') @> $1::bigint
    and $1::bigint >= run.first and $1::bigint < run.first + run.length
