-- What holds the key of a delivery. $1 destination, $2 position, $3 most index entries to read for
-- the tail, $4 now.
with moment as (select coalesce($4::timestamptz, clock_timestamp()) as at),
asked as (
    select {schema}.key_hash(e.partition_key) as key_hash, t.on_quarantine
    from {schema}.events e, {schema}.destinations t
    where e.position = $2::bigint and t.destination_id = $1::integer and t.ordering <> 'none'
),
head as (
    select d.position, d.event_id, d.state, d.available_at, d.key_hash
    from asked a
    join {schema}.deliveries d on d.key_hash = a.key_hash
    where d.destination_id = $1::integer and d.waited
        and (d.state = 1 or d.state = 2 and a.on_quarantine = 'hold'
            or d.state = 0 and d.available_at > (select at from moment))
    order by d.position
    limit 1
),
behind as (
    select d.key_hash = h.key_hash as of_key
    from head h, {schema}.deliveries d
    where d.destination_id = $1::integer and d.position > h.position
    order by d.position
    limit $3::bigint + 1
)
select head.*, (select count(*) from behind where of_key) as tail,
    (select count(*) from behind) > $3::bigint as capped
from head
