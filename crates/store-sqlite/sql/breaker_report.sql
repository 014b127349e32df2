-- A breaker that was open before keeps its time.
-- ?1 destination, ?2 session, ?3 now, ?4 code, ?5 detail, ?6 next probe,
-- ?7 whether it is a refusal.
INSERT INTO postrider_breakers
    (destination_id, session_id, since, code, detail, next_probe_at, refused)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (destination_id, session_id) DO UPDATE
SET code = excluded.code, detail = excluded.detail, next_probe_at = excluded.next_probe_at,
    refused = excluded.refused;
