-- ?1 version, ?2 type, ?3 schema version.
INSERT INTO postrider_delivery_set_events (version, event_type, schema_version)
VALUES (?1, ?2, ?3);
