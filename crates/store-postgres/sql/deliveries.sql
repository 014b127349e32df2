-- $1 destination, $2 state, $3 key; null: any. $4 and $5 after (destination, position), $6 limit.
select d.destination_id, d.position, d.event_id, d.lane, d.state, d.attempts, d.available_at
from {schema}.deliveries d
where (d.destination_id, d.position) > ($4::integer, $5::bigint)
    and ($1::integer is null or d.destination_id = $1::integer)
    and ($2::smallint is null or d.state = $2::smallint)
    and ($3::bigint is null or d.key_hash = $3::bigint)
order by d.destination_id, d.position
limit $6::bigint
