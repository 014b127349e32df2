-- The lowest positions first. ?1 limit, ?2 destination, ?3 code, ?4 event ids (JSON array);
-- null: any.
SELECT d.destination_id, d.position, e.event_id
FROM postrider_quarantine AS q INDEXED BY postrider_quarantine_open
CROSS JOIN postrider_deliveries AS d
    ON d.destination_id = q.destination_id AND d.position = q.position AND d.state = 2
CROSS JOIN postrider_events AS e ON e.position = d.position
WHERE q.resolved_at IS NULL
    AND (?2 IS NULL OR d.destination_id = ?2)
    AND (?3 IS NULL OR q.code = ?3)
    AND (?4 IS NULL OR e.event_id IN (SELECT value FROM json_each(?4)))
ORDER BY d.position, d.destination_id
LIMIT ?1;
