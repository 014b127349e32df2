-- $1 events, $2 destination, $3 code; null: any. $4 and $5 after (destination, position), $6
-- limit, $7 most index entries to read for each tail.
--
-- `overtaken` looks at the events of the next 10,000 positions: a later one that is further away
-- than that is not looked for.
select q.destination_id, q.position, q.event_id, e.envelope, e.envelope_digest, d.key_hash, d.attempts,
    q.code, q.detail, q.since, behind.tail, behind.seen > $7::bigint as capped,
    exists (
        select from {schema}.events later
        join {schema}.delivery_set_members m
            on m.delivery_set_id = later.delivery_set_id and m.event_type = later.event_type
            and m.schema_version = later.schema_version and m.destination_id = q.destination_id
        where later.position > q.position and later.position <= q.position + 10000
            and later.partition_key = e.partition_key
            and not exists (
                select from {schema}.deliveries o
                where o.destination_id = q.destination_id and o.position = later.position
            )
    ) as overtaken
from {schema}.quarantine q
join {schema}.deliveries d
    on d.destination_id = q.destination_id and d.position = q.position and d.state = 2
join {schema}.events e on e.event_id = q.event_id
cross join lateral (
    select count(*) as seen, count(*) filter (where of_key) as tail
    from (
        select o.key_hash = d.key_hash as of_key from {schema}.deliveries o
        where o.destination_id = q.destination_id and o.position > q.position
        order by o.position
        limit $7::bigint + 1
    ) o
) behind
where q.resolved_at is null
    and (q.destination_id, q.position) > ($4::integer, $5::bigint)
    and ($1::uuid[] is null or q.event_id = any ($1::uuid[]))
    and ($2::integer is null or q.destination_id = $2::integer)
    and ($3::text is null or q.code = $3::text)
order by q.destination_id, q.position
limit $6::bigint
