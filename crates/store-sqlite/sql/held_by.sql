-- The first delivery of the key that holds the later ones.
-- ?1 destination, ?2 position of any event of the key, ?3 now.
SELECT h.position, held.event_id, h.state, h.available_at, h.key_hash
FROM postrider_events AS e
CROSS JOIN postrider_destinations AS d ON d.destination_id = ?1
CROSS JOIN postrider_deliveries AS h INDEXED BY postrider_deliveries_exceptions
    ON h.destination_id = ?1 AND h.key_hash = e.key_hash AND h.waited = 1
CROSS JOIN postrider_events AS held ON held.position = h.position
WHERE e.position = ?2
    AND d.ordering <> 'none'
    AND CASE h.state
        WHEN 0 THEN h.available_at > ?3
        WHEN 1 THEN TRUE
        ELSE d.on_quarantine = 'hold'
    END
ORDER BY h.position
LIMIT 1;
