-- ?1 type, ?2 version, ?3 registration.
INSERT INTO postrider_current_event_types (event_type, schema_version, event_type_id)
VALUES (?1, ?2, ?3)
ON CONFLICT (event_type, schema_version) DO UPDATE SET event_type_id = excluded.event_type_id;
