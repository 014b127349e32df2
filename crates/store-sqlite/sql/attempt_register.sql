-- No row: it is registered.
-- ?1 attempt id, ?2 session, ?3 destination, ?4 now.
INSERT INTO postrider_attempts (attempt_id, session_id, destination_id, registered_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (attempt_id) DO NOTHING
RETURNING attempt;
