-- Whether this very receipt is the primary one. $1 destination, $2 position, $3 attempt, $4 shared
-- part, $5 number.
select exists (
    select from {schema}.receipt_batches b
    cross join lateral unnest(b.run_starts, b.run_lengths) with ordinality as run(first, length, n)
    where b.destination_id = $1::integer
        and int8range(b.first_position, b.last_position, '[]') @> $2::bigint
        and b.attempt_id = $3::uuid and b.shared = $4::text
        and $2::bigint >= run.first and $2::bigint < run.first + run.length
        and b.run_numbers[run.n] + ($2::bigint - run.first) is not distinct from $5::bigint
)
