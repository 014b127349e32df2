-- Quarantined deliveries in (destination, position) order.
-- ?1 after: destination, ?2 after: position, ?3 limit, ?4 destination, ?5 code, ?6 event ids
-- (JSON array); null: any.
SELECT
    d.destination_id, d.position, e.event_id, e.envelope_digest, d.key_hash, d.attempts, q.code,
    q.detail, q.since,
    -- Whether a later delivery of the key went out already: it was prescribed, and is not open.
    EXISTS (
        SELECT 1
        FROM postrider_events AS later
        JOIN postrider_delivery_set_members AS m
            ON m.version = later.delivery_set
            AND m.event_type = later.event_type
            AND m.schema_version = later.schema_version
            AND m.destination_id = d.destination_id
        WHERE later.key_hash = d.key_hash
            AND later.position > d.position
            AND NOT EXISTS (
                SELECT 1 FROM postrider_deliveries AS o
                WHERE o.destination_id = d.destination_id AND o.position = later.position
            )
    ) AS overtaken,
    e.envelope
FROM postrider_destinations AS t
CROSS JOIN postrider_deliveries AS d INDEXED BY postrider_deliveries_stuck
    ON d.destination_id = t.destination_id AND d.state = 2 AND d.state <> 0
CROSS JOIN postrider_events AS e ON e.position = d.position
CROSS JOIN postrider_quarantine AS q
    ON q.destination_id = d.destination_id AND q.position = d.position AND q.resolved_at IS NULL
WHERE (t.destination_id, d.position) > (?1, ?2)
    AND (?4 IS NULL OR t.destination_id = ?4)
    AND (?5 IS NULL OR q.code = ?5)
    AND (?6 IS NULL OR e.event_id IN (SELECT value FROM json_each(?6)))
ORDER BY t.destination_id, d.position
LIMIT ?3;
