-- Two consumers of one destination are one obligation.
-- ?1 version, ?2 type, ?3 schema version, ?4 destination digest.
INSERT INTO postrider_delivery_set_members (version, event_type, schema_version, destination_id)
SELECT ?1, ?2, ?3, destination_id FROM postrider_destinations WHERE digest = ?4
ON CONFLICT DO NOTHING;
