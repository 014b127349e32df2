-- What a session needs to know to take its fair share. $1 session, $2 now.
with me as (select serves from {schema}.sessions where session_id = $1::uuid)
select t.destination_id, t.lanes,
    (
        select count(*) from {schema}.sessions s
        where s.ended_at is null and s.expires_at > coalesce($2::timestamptz, clock_timestamp())
            and t.destination_id = any (s.serves)
            and not exists (
                select from {schema}.breakers b
                where b.session_id = s.session_id and b.destination_id = t.destination_id and b.refused)
    ) as sessions,
    array(
        select l.lane from {schema}.lanes l
        where l.destination_id = t.destination_id and l.session_id = $1::uuid
        order by l.lane
    ) as held,
    (
        select count(*) from {schema}.lanes l
        where l.destination_id = t.destination_id and l.session_id is null
    ) as free,
    exists (select from {schema}.suspensions x where x.destination_id = t.destination_id) as suspended
from me cross join {schema}.destinations t
where t.destination_id = any (me.serves)
order by t.destination_id
