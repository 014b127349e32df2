-- ?1 destination, ?2 position, ?3 now.
UPDATE postrider_deliveries SET state = 0, attempts = 0, available_at = ?3, waited = 1
WHERE destination_id = ?1 AND position = ?2 AND state = 2;
