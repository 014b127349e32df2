-- Registers a destination with its lanes. $1 name, $2 generation, $3 canonical JSON, $4 kind, $5
-- ordering, $6 lanes, $7 onUnknown, $8 onQuarantine, $9 maxPayloadBytes, $10 now.
--
-- Ids are counted, not drawn from the sequence: a refused apply leaves no hole, and the lock of
-- apply lets one number at a time.
with added as (
    insert into {schema}.destinations (
        destination_id, name, generation, digest, canonical, kind, ordering, lanes, on_unknown,
        on_quarantine, max_payload_bytes, registered_at
    )
    select coalesce(max(destination_id), 0) + 1, $1::text, $2::bigint, sha256(convert_to($3::text, 'UTF8')),
        $3::text, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::bigint,
        coalesce($10::timestamptz, clock_timestamp())
    from {schema}.destinations
    returning destination_id, lanes
)
insert into {schema}.lanes (destination_id, lane)
select destination_id, lane from added, generate_series(0, lanes - 1) lane
