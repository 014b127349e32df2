-- What a delivery set prescribes. $1 delivery set, $2 and $3 applicable event types and schema
-- versions, $4 to $8 members: event type, schema version, destination digest, consumer, mandatory.
-- One consumer per event and destination: of several the first is kept, as they are one delivery.
with events as (
    insert into {schema}.delivery_set_events (delivery_set_id, event_type, schema_version)
    select $1::integer, event_type, schema_version
    from unnest($2::text[], $3::text[]) as g(event_type, schema_version)
)
insert into {schema}.delivery_set_members (
    delivery_set_id, event_type, schema_version, destination_id, consumer, mandatory
)
select distinct on (g.event_type, g.schema_version, t.destination_id)
    $1::integer, g.event_type, g.schema_version, t.destination_id, g.consumer, g.mandatory
from unnest($4::text[], $5::text[], $6::bytea[], $7::text[], $8::boolean[]) with ordinality
    as g(event_type, schema_version, digest, consumer, mandatory, n)
join {schema}.destinations t on t.digest = g.digest
order by g.event_type, g.schema_version, t.destination_id, g.n
