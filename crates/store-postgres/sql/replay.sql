-- Quarantined deliveries become pending and due, lowest positions first. Of two replays at once
-- the second waits here and finds them pending.
--
-- $1 events, $2 destination, $3 code; null: any. $4 limit, $5 now, $6 who.
with moment as (select coalesce($5::timestamptz, clock_timestamp()) as at),
chosen as (
    select d.destination_id, d.position
    from {schema}.quarantine q
    join {schema}.deliveries d
        on d.destination_id = q.destination_id and d.position = q.position and d.state = 2
    where q.resolved_at is null
        and ($1::uuid[] is null or q.event_id = any ($1::uuid[]))
        and ($2::integer is null or q.destination_id = $2::integer)
        and ($3::text is null or q.code = $3::text)
    order by d.position, d.destination_id
    limit $4::bigint
    for update
),
replayed as (
    update {schema}.deliveries d
    set state = 0, attempts = 0, waited = true, available_at = (select at from moment)
    from chosen c
    where d.destination_id = c.destination_id and d.position = c.position
    returning d.destination_id, d.position, d.event_id
),
resolved as (
    update {schema}.quarantine q
    set resolved_at = (select at from moment), resolved_by = $6::text
    from replayed r
    where q.destination_id = r.destination_id and q.position = r.position and q.resolved_at is null
)
select destination_id, position, event_id from replayed order by position, destination_id
