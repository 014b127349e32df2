-- Makes a registration of an event type current, adding it if it is new.
--
-- $1 event type, $2 schema version, $3 content type, $4 JSON Schema, $5 now. No row: it is current
-- already.
with same as (
    select event_type_id from {schema}.event_types
    where event_type = $1::text and schema_version = $2::text and content_type = $3::text
        and json_schema is not distinct from $4::text
),
added as (
    insert into {schema}.event_types (
        event_type, schema_version, content_type, json_schema, schema_digest, registered_at
    )
    select $1::text, $2::text, $3::text, $4::text, sha256(convert_to($4::text, 'UTF8')),
        coalesce($5::timestamptz, clock_timestamp())
    where not exists (select from same)
    returning event_type_id
)
insert into {schema}.event_types_current as c (event_type, schema_version, event_type_id)
select $1::text, $2::text, event_type_id from (table same union all table added) r
on conflict (event_type, schema_version) do update set event_type_id = excluded.event_type_id
where c.event_type_id <> excluded.event_type_id
returning 1
