-- What sealing an event needs from the database, one row; no row: no delivery set is active.
-- ?1 event type, ?2 schema version, ?3 payload length in bytes.
SELECT
    s.version,
    s.digest,
    EXISTS (
        SELECT 1 FROM postrider_delivery_set_events AS e
        WHERE e.version = s.version AND e.event_type = ?1 AND e.schema_version = ?2
    ) AS known,
    (
        SELECT t.schema_digest
        FROM postrider_current_event_types AS c
        JOIN postrider_event_types AS t USING (event_type_id)
        WHERE c.event_type = ?1 AND c.schema_version = ?2
    ) AS schema_digest,
    small.name AS too_small,
    small.max_payload_bytes AS too_small_limit
FROM (
    SELECT version FROM postrider_delivery_set_activations ORDER BY activation_id DESC LIMIT 1
) AS active
JOIN postrider_delivery_sets AS s USING (version)
-- The first destination that does not take the payload.
LEFT JOIN postrider_destinations AS small ON small.destination_id = (
    SELECT min(m.destination_id)
    FROM postrider_delivery_set_members AS m
    JOIN postrider_destinations AS d USING (destination_id)
    WHERE m.version = s.version
        AND m.event_type = ?1
        AND m.schema_version = ?2
        AND d.max_payload_bytes < ?3
);
