-- As deliveries_page, through the index of what is not pending.
-- ?1 destination, ?2 after, ?3 limit, ?4 state, ?5 key hash; null: any.
SELECT d.position, e.event_id, d.lane, d.state, d.attempts, d.available_at
FROM postrider_deliveries AS d INDEXED BY postrider_deliveries_stuck
CROSS JOIN postrider_events AS e ON e.position = d.position
WHERE d.destination_id = ?1
    AND d.state = ?4
    AND d.state <> 0
    AND d.position > ?2
    AND (?5 IS NULL OR d.key_hash = ?5)
ORDER BY d.position
LIMIT ?3;
