-- Due deliveries of some lanes, in position order, with their events.
--
-- $1 destination, $2 lanes, $3 after, $4 excluded positions as an int8multirange, $5 busy keys as
-- an int8multirange, $6 limit, $7 bytes_max, $8 now.
--
-- Reads the primary key upwards from `after` and stops at the limit; the hold asks the partial
-- index of exceptions, which is empty where all is well. An earlier delivery of the key that is
-- due holds too if this scan does not reach it: below `after` and not in the caller's hands.
-- The window sums up what the narrow rows know of the payloads, so that events cut off by
-- bytes_max are never read. Order of the answer: none, the caller sorts (wide rows are not spooled
-- through a sort here).
with moment as (select coalesce($8::timestamptz, clock_timestamp()) as at),
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
        and not ($4::text::int8multirange @> d.position)
        and not ($5::text::int8multirange @> d.key_hash)
        and not ((select by_key from setting) and exists (
            select from {schema}.deliveries h
            where h.destination_id = $1::integer
                and h.key_hash = d.key_hash
                and h.position < d.position
                and h.waited
                and (
                    h.state = 1
                    or h.state = 2 and (select quarantine_holds from setting)
                    or h.state = 0 and (
                        h.available_at > (select at from moment)
                        or h.position <= $3::bigint and not ($4::text::int8multirange @> h.position)
                    )
                )
        ))
    order by d.position
    limit $6::bigint
)
select due.position, due.lane, due.key_hash, due.attempts,
    (extract(epoch from (select at from moment) - due.first_attempt_at) * 1000000)::bigint as first_attempt_ago_us,
    e.event_id, e.envelope, e.envelope_digest, e.payload, e.traceparent, e.tracestate, e.headers,
    e.appended_at, (select count(*) from due) as found
from due
join {schema}.events e on e.event_id = due.event_id
where due.bytes <= $7::bigint or due.n = 1
