-- Due deliveries of some lanes, in position order, with their events.
--
-- $1 destination, $2 lanes, $3 after, $4 excluded positions as an int8multirange, $5 busy keys as
-- an int8multirange, $6 limit, $7 bytes_max, $8 now.
--
-- Reads the primary key upwards from `after` and stops at the limit; the hold asks the partial
-- index of exceptions, which is empty where all is well. An earlier delivery of the key that is
-- due holds too if this scan does not reach it, below `after`. What is in the caller's hands holds
-- nothing, even where it waits again because a clock stepped back.
-- The window sums up what the narrow rows know of the payloads, so that events cut off by
-- bytes_max are never read.
--
-- The answer (nothing where the destination is not registered): one row with what the deliveries say, in parallel arrays and no particular order, and
-- how long it is until the first retry on these lanes is due where nothing else is to be had now;
-- then one row for each event, in no particular order either. The caller joins them by position and
-- id. Events are read as ranges of the index on position, one for each run of deliveries, in each
-- partition: in a backlog that costs a fraction of finding each by its id. Where every run is one
-- delivery long it costs more, by one look into a small index for each partition.
--
-- Reading a multirange from text is not immutable, so that it would be read again for every row.
with asked as (
    select $4::text::int8multirange as excluded, $5::text::int8multirange as busy
),
moment as (select coalesce($8::timestamptz, clock_timestamp()) as at),
setting as (
    select t.ordering <> 'none' as by_key, t.on_quarantine = 'hold' as quarantine_holds
    from {schema}.destinations t
    where t.destination_id = $1::integer
        and not exists (select from {schema}.suspensions s where s.destination_id = $1::integer)
),
due as materialized (
    select d.position, d.event_id, d.key_hash, d.lane, d.attempts, d.first_attempt_at,
        sum(d.payload_bytes) over (order by d.position rows unbounded preceding) as bytes,
        row_number() over (order by d.position rows unbounded preceding) as n
    from {schema}.deliveries d
    where d.destination_id = $1::integer
        and d.position > $3::bigint
        and d.lane = any ($2::smallint[])
        and d.state = 0
        and exists (select from setting)
        and (not d.waited or d.available_at <= (select at from moment))
        and not ((select excluded from asked) @> d.position)
        and not ((select busy from asked) @> d.key_hash)
        and not ((select by_key from setting) and exists (
            select from {schema}.deliveries h
            where h.destination_id = $1::integer
                and h.key_hash = d.key_hash
                and h.position < d.position
                and h.waited
                and (
                    h.state = 1
                    or h.state = 2 and (select quarantine_holds from setting)
                    or h.state = 0
                        and (h.available_at > (select at from moment) or h.position <= $3::bigint)
                        and not ((select excluded from asked) @> h.position)
                )
        ))
    order by d.position
    limit $6::bigint
),
chosen as materialized (select * from due where bytes <= $7::bigint or n = 1),
runs as materialized (
    select min(position) as first, max(position) as last from chosen group by position - n
)
select f.found, f.positions, f.event_ids, f.lanes, f.key_hashes, f.attempts,
    f.first_attempt_ago_us,
    m.at as now,
    pg_current_xact_id()::text::bigint as number,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as over,
    exists (select from {schema}.suspensions s where s.destination_id = $1::integer) as suspended,
    case when f.found < $6::bigint then (
        select (extract(epoch from d.available_at - m.at) * 1000000)::bigint
        from {schema}.deliveries d
        where d.destination_id = $1::integer and d.waited and d.state = 0
            and d.available_at > m.at and d.lane = any ($2::smallint[])
        order by d.available_at
        limit 1
    ) end as due_in_us,
    null::bigint as position, null::uuid as event_id, null::text as envelope,
    null::bytea as envelope_digest, null::bytea as payload, null::text as traceparent,
    null::text as tracestate, null::text as headers, null::timestamptz as appended_at
from moment m
join {schema}.destinations t on t.destination_id = $1::integer
cross join (
    select (select count(*) from due) as found,
        array_agg(c.position) as positions, array_agg(c.event_id) as event_ids,
        array_agg(c.lane) as lanes, array_agg(c.key_hash) as key_hashes, array_agg(c.attempts) as attempts,
        array_agg(
            (extract(epoch from (select at from moment) - c.first_attempt_at) * 1000000)::bigint
        ) as first_attempt_ago_us
    from chosen c
) f
union all
select null, null, null, null, null, null, null, null, null, null, null, null,
    e.position, e.event_id, e.envelope, e.envelope_digest, e.payload, e.traceparent, e.tracestate,
    e.headers, e.appended_at
from runs r
join {schema}.events e on e.position between r.first and r.last
