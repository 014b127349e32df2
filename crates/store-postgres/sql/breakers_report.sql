-- $1 session, $2 destinations, $3 codes (null: closed), $4 details, $5 microseconds until the next
-- probe, $6 whether it is a refusal, $7 now. A breaker that stays open keeps the time since it is.
with moment as (select coalesce($7::timestamptz, clock_timestamp()) as at),
given as (
    select * from unnest($2::integer[], $3::text[], $4::text[], $5::bigint[], $6::boolean[])
        as g(destination_id, code, detail, probe_us, refused)
),
closed as (
    delete from {schema}.breakers b using given g
    where b.session_id = $1::uuid and b.destination_id = g.destination_id and g.code is null
)
insert into {schema}.breakers as b (session_id, destination_id, since, code, detail, next_probe_at, refused)
select $1::uuid, g.destination_id, m.at, g.code, g.detail,
    least(m.at + g.probe_us * interval '1 microsecond', '9999-12-31 23:59:59.999999+00'), g.refused
from given g, moment m
where g.code is not null
on conflict (session_id, destination_id) do update
set code = excluded.code, detail = excluded.detail, next_probe_at = excluded.next_probe_at,
    refused = excluded.refused
