-- Microseconds until the first retry on these lanes is due, and whether the destination is
-- suspended. $1 destination, $2 lanes, $3 now.
-- No row: the destination is not registered.
select (
    select (extract(epoch from d.available_at - m.at) * 1000000)::bigint
    from {schema}.deliveries d
    where d.destination_id = $1::integer and d.waited and d.state = 0
        and d.available_at > m.at and d.lane = any ($2::smallint[])
    order by d.available_at
    limit 1
) as due_in_us, m.at as now,
    exists (select from {schema}.suspensions s where s.destination_id = $1::integer) as suspended
from {schema}.destinations t
cross join (select coalesce($3::timestamptz, clock_timestamp()) as at) m
where t.destination_id = $1::integer
