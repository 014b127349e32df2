-- $1 session, $2 reason, $3 now. Answers how many lanes it held.
with ended as (
    update {schema}.sessions
    set ended_at = coalesce($3::timestamptz, clock_timestamp()), ended_reason = $2::text
    where session_id = $1::uuid
),
awake as (delete from {schema}.sleepers where session_id = $1::uuid),
forgotten as (delete from {schema}.breakers where session_id = $1::uuid),
freed as (
    update {schema}.lanes set session_id = null, since = null
    where session_id = $1::uuid
    returning 1
)
select count(*) as lanes from freed
