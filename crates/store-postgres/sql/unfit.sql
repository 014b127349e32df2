-- Quarantines pending deliveries that were found unfit before any attempt.
--
-- $1 destination, $2 positions, $3 codes, $4 details, $5 now.
with changed as (
    update {schema}.deliveries d
    set state = 2, waited = true
    from unnest($2::bigint[], $3::text[], $4::text[]) as g(position, code, detail)
    where d.destination_id = $1::integer and d.position = g.position and d.state = 0
    returning d.position, d.event_id, g.code, g.detail
)
insert into {schema}.quarantine (destination_id, position, event_id, code, detail, since)
select $1::integer, position, event_id, code, detail, coalesce($5::timestamptz, clock_timestamp())
from changed
on conflict do nothing
