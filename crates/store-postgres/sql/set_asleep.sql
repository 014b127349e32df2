-- $1 session, $2 asleep. A session that ended is never asleep.
with awake as (
    delete from {schema}.sleepers where session_id = $1::uuid and not $2::boolean
)
insert into {schema}.sleepers (session_id, until)
select session_id, expires_at from {schema}.sessions
where session_id = $1::uuid and $2::boolean and ended_at is null
on conflict (session_id) do update set until = excluded.until
