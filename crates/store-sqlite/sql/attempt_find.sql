-- An attempt that this session registered for this destination.
-- ?1 attempt id, ?2 session, ?3 destination.
SELECT
    a.attempt,
    a.registered_at,
    EXISTS (SELECT 1 FROM postrider_attempt_finishes AS f WHERE f.attempt = a.attempt)
FROM postrider_attempts AS a
WHERE a.attempt_id = ?1 AND a.session_id = ?2 AND a.destination_id = ?3;
