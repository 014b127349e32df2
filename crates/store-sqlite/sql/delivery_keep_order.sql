-- Marks the next open delivery of a key, so that no scan that started above the tail overtakes
-- it once it is released. ?1 destination, ?2 position, ?3 key hash.
UPDATE postrider_deliveries SET waited = 1
WHERE destination_id = ?1 AND position = (
    SELECT d.position
    FROM postrider_events AS e
    JOIN postrider_deliveries AS d ON d.destination_id = ?1 AND d.position = e.position
    WHERE e.key_hash = ?3 AND e.position > ?2
    ORDER BY e.position
    LIMIT 1
);
