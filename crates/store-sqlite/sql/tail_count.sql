-- Open deliveries of a key behind a position. ?1 destination, ?2 position, ?3 key hash, ?4 most.
SELECT count(*) FROM (
    SELECT 1
    FROM postrider_events AS e
    CROSS JOIN postrider_deliveries AS d ON d.destination_id = ?1 AND d.position = e.position
    WHERE e.key_hash = ?3 AND e.position > ?2
    LIMIT ?4
);
