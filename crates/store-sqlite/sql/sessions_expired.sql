-- ?1 now, ?2 how many.
SELECT session_id FROM postrider_sessions
WHERE ended_at IS NULL AND expires_at <= ?1
ORDER BY expires_at, session_id
LIMIT ?2;
