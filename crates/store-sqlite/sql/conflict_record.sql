-- ?1 destination, ?2 position, ?3 code, ?4 detail, ?5 now.
INSERT INTO postrider_quarantine (destination_id, position, code, detail, since)
VALUES (?1, ?2, ?3, ?4, ?5);
