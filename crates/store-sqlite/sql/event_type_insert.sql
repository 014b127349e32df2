-- ?1 type, ?2 version, ?3 content type, ?4 JSON Schema, ?5 its digest.
INSERT INTO postrider_event_types (
    event_type, schema_version, content_type, json_schema, schema_digest
) VALUES (?1, ?2, ?3, ?4, ?5)
RETURNING event_type_id;
