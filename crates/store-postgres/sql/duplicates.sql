-- Keeps receipts that found their slot taken. The same one again is kept once.
--
-- $1 destination, $2 attempts, $3 positions, $4 shared parts, $5 numbers, $6 now, $7 late.
insert into {schema}.duplicate_receipts (
    attempt_id, position, destination_id, accepted_at, shared, shared_digest, number, late
)
select g.attempt_id, g.position, $1::integer, coalesce($6::timestamptz, clock_timestamp()),
    g.shared, sha256(convert_to(g.shared, 'UTF8')), g.number, $7::boolean
from unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
    as g(attempt_id, position, shared, number)
on conflict do nothing
