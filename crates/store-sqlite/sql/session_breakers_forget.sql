-- ?1 session.
DELETE FROM postrider_breakers WHERE session_id = ?1;
