-- $1 after, $2 limit, $3 event type, $4 tenant, $5 aggregate type, $6 aggregate id, $7 partition
-- key; null: any. Goes by the position index of every partition; a filter that matches little
-- reads on until the statement's time is over.
select e.position, e.event_id, e.envelope, e.appended_at,
    (
        select count(*)
        from {schema}.delivery_set_members m
        join {schema}.deliveries d
            on d.destination_id = m.destination_id and d.position = e.position
        where m.delivery_set_id = e.delivery_set_id and m.event_type = e.event_type
            and m.schema_version = e.schema_version
    ) as open
from {schema}.events e
where e.position > $1::bigint
    and ($3::text is null or e.event_type = $3::text)
    and ($4::text is null or e.tenant = $4::text)
    and ($5::text is null or e.aggregate_type = $5::text)
    and ($6::text is null or e.aggregate_id = $6::text)
    and ($7::text is null or e.partition_key = $7::text)
order by e.position
limit $2::bigint
