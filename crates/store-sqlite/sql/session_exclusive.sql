SELECT session_id, owner, expires_at FROM postrider_sessions
WHERE exclusive = 1 AND ended_at IS NULL;
