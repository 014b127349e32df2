-- Open deliveries of one destination. ?1 destination, ?2 after, ?3 limit, ?4 state, ?5 key hash;
-- null: any.
SELECT d.position, e.event_id, d.lane, d.state, d.attempts, d.available_at
FROM postrider_deliveries AS d
CROSS JOIN postrider_events AS e ON e.position = d.position
WHERE d.destination_id = ?1
    AND d.position > ?2
    AND (?4 IS NULL OR d.state = ?4)
    AND (?5 IS NULL OR d.key_hash = ?5)
ORDER BY d.position
LIMIT ?3;
