-- $1 count at most, $2 now. Each count reads at most so many index entries, plus one.
select t.destination_id, t.lanes,
    (select count(*) from (
        select from {schema}.deliveries d
        where d.destination_id = t.destination_id and d.state = 0
        limit $1::bigint + 1) c) as pending,
    (select count(*) from (
        select from {schema}.deliveries d
        where d.destination_id = t.destination_id and d.state = 1
        limit $1::bigint + 1) c) as unknown,
    (select count(*) from (
        select from {schema}.deliveries d
        where d.destination_id = t.destination_id and d.state = 2
        limit $1::bigint + 1) c) as quarantined,
    (
        select (extract(epoch from coalesce($2::timestamptz, clock_timestamp()) - e.appended_at) * 1000000)::bigint
        from {schema}.deliveries d
        join {schema}.events e on e.event_id = d.event_id
        where d.destination_id = t.destination_id and d.state = 0
        order by d.position
        limit 1
    ) as oldest_pending_us,
    (
        select count(*) from {schema}.lanes l
        where l.destination_id = t.destination_id and l.session_id is not null
    ) as lanes_held,
    b.session_id, b.since, b.code, b.detail, b.next_probe_at, b.refused
from {schema}.destinations t
left join lateral (
    select * from {schema}.breakers b
    where b.destination_id = t.destination_id
    order by b.refused, b.since, b.session_id
    limit 1
) b on true
order by t.destination_id
