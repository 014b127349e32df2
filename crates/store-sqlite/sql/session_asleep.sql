-- ?1 session, ?2 asleep.
UPDATE postrider_sessions SET asleep = ?2 WHERE session_id = ?1;
