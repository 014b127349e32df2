-- $1 position.
select destination_id, attempt_id, accepted_at, shared, number, late
from {schema}.duplicate_receipts
where position = $1::bigint
order by accepted_at, attempt_id, shared, number nulls first
