-- Quarantines an open delivery whose evidence carries another digest; one that is quarantined
-- keeps its first reason. $1 destination, $2 position, $3 code, $4 detail, $5 now.
with changed as (
    update {schema}.deliveries
    set state = 2, waited = true
    where destination_id = $1::integer and position = $2::bigint and state <> 2
    returning event_id, key_hash
),
kept as (
    insert into {schema}.quarantine (destination_id, position, event_id, code, detail, since)
    select $1::integer, $2::bigint, event_id, $3::text, $4::text, coalesce($5::timestamptz, clock_timestamp())
    from changed
    on conflict do nothing
)
select key_hash from changed
