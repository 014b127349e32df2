-- ?1 session, ?2 attempt.
DELETE FROM postrider_open_attempts WHERE session_id = ?1 AND attempt = ?2;
