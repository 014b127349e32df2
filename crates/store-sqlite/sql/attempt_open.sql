-- ?1 session, ?2 attempt.
INSERT INTO postrider_open_attempts (session_id, attempt) VALUES (?1, ?2);
