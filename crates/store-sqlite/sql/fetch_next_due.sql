-- ?1 destination, ?2 now, ?3 lanes (JSON array).
SELECT min(available_at) FROM postrider_deliveries
WHERE destination_id = ?1
    AND waited = 1
    AND state = 0
    AND available_at > ?2
    AND lane IN (SELECT value FROM json_each(?3));
