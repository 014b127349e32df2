-- Marks the next open delivery of keys whose head was taken away from outside the session that
-- sends there, so that no scan that started above the tail overtakes it (see fetch).
--
-- $1 destination, $2 keys, $3 the position of each key's head. One pass over the primary key from
-- the first head, for all keys: no index over all keys pays for this rare question.
with head as (
    select key_hash, max(position) as position
    from unnest($2::bigint[], $3::bigint[]) as h(key_hash, position)
    group by key_hash
),
next as (
    select distinct on (d.key_hash) d.position
    from (
        select key_hash, position from {schema}.deliveries
        where destination_id = $1::integer
            and position > (select min(position) from head)
            and key_hash = any ($2::bigint[])
        offset 0
    ) d
    join head h on h.key_hash = d.key_hash and d.position > h.position
    where exists (
        select from {schema}.destinations t
        where t.destination_id = $1::integer and t.ordering <> 'none')
    order by d.key_hash, d.position
)
update {schema}.deliveries d set waited = true
from next
where d.destination_id = $1::integer and d.position = next.position and not d.waited
