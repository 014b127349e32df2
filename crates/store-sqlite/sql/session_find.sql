-- ?1 session.
SELECT ended_at FROM postrider_sessions WHERE session_id = ?1;
