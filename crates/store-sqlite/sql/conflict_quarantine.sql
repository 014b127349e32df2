-- ?1 destination, ?2 position. No row: closed, or quarantined before with its first reason.
UPDATE postrider_deliveries SET state = 2, waited = 1
WHERE destination_id = ?1 AND position = ?2 AND state <> 2
RETURNING key_hash;
