-- $1 session, $2 lease in microseconds, $3 now. No row: the session is not live. Changes no key
-- column, so it neither waits for settles nor makes them wait.
with moment as (select coalesce($3::timestamptz, clock_timestamp()) as at),
beaten as (
    update {schema}.sessions s
    set expires_at = least(
        (select at from moment) + $2::bigint * interval '1 microsecond',
        '9999-12-31 23:59:59.999999+00')
    where s.session_id = $1::uuid and s.ended_at is null and s.expires_at > (select at from moment)
    returning s.session_id, s.expires_at
),
sleeping as (
    update {schema}.sleepers z set until = b.expires_at
    from beaten b where z.session_id = b.session_id
)
select 1 from beaten
