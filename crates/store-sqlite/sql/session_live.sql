-- The fence (I8). ?1 session, ?2 now.
SELECT 1 FROM postrider_sessions
WHERE session_id = ?1 AND ended_at IS NULL AND expires_at > ?2;
