-- Partitions of this month and the next $2 that do not exist: name, first id, end. An id's first 48
-- bits are milliseconds since 1970. $1 now.
with month as (
    select date_trunc('month', coalesce($1::timestamptz, clock_timestamp()) at time zone 'UTC')
        + make_interval(months => ahead) as start
    from generate_series(0, $2::integer) ahead
),
bound as (
    select start,
        lpad(to_hex((extract(epoch from start) * 1000)::bigint), 12, '0') as first_hex,
        lpad(to_hex((extract(epoch from start + interval '1 month') * 1000)::bigint), 12, '0') as end_hex
    from month
)
select 'events_' || to_char(start, 'YYYYMM') as name,
    rpad(first_hex, 32, '0')::uuid::text as from_id, rpad(end_hex, 32, '0')::uuid::text as to_id
from bound
where to_regclass('{schema}.events_' || to_char(start, 'YYYYMM')) is null
order by start
