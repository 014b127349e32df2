-- ?1 destination, ?2 position.
UPDATE postrider_deliveries SET state = 2, waited = 1
WHERE destination_id = ?1 AND position = ?2 AND state = 0;
