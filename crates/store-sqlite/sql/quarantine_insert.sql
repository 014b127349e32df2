-- Before the delivery's state is changed: only what is pending is quarantined by its attempt.
-- ?1 destination, ?2 position, ?3 code, ?4 detail, ?5 now.
INSERT INTO postrider_quarantine (destination_id, position, code, detail, since)
SELECT ?1, ?2, ?3, ?4, ?5 FROM postrider_deliveries
WHERE destination_id = ?1 AND position = ?2 AND state = 0;
