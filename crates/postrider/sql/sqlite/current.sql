-- What an event of this type would be appended under, to compare with what it was checked with:
-- the active delivery set, whether the type is registered, and the digest of its JSON Schema.
-- ?1 event type, ?2 schema version.
SELECT active.version, c.event_type_id IS NOT NULL, t.schema_digest
FROM (
    SELECT version FROM postrider_delivery_set_activations ORDER BY activation_id DESC LIMIT 1
) AS active
LEFT JOIN postrider_current_event_types AS c ON c.event_type = ?1 AND c.schema_version = ?2
LEFT JOIN postrider_event_types AS t USING (event_type_id)
