-- Takes free lanes, the lowest first. Lanes that another session is just taking are passed over.
--
-- $1 session, $2 destinations, $3 how many of each, $4 now.
with wanted as (
    select * from unnest($2::integer[], $3::integer[]) as w(destination_id, count)
),
free as (
    select f.destination_id, f.lane
    from wanted w
    join {schema}.sessions s on s.session_id = $1::uuid and w.destination_id = any (s.serves)
    cross join lateral (
        select l.destination_id, l.lane from {schema}.lanes l
        where l.destination_id = w.destination_id and l.session_id is null
        order by l.lane
        limit w.count
        for update skip locked
    ) f
)
update {schema}.lanes l
set session_id = $1::uuid, since = coalesce($4::timestamptz, clock_timestamp())
from free f
where l.destination_id = f.destination_id and l.lane = f.lane
returning l.destination_id, l.lane
