-- A destination that is suspended keeps its first reason.
-- ?1 destination, ?2 code, ?3 detail, ?4 now.
INSERT INTO postrider_suspensions (destination_id, code, detail, since) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING;
