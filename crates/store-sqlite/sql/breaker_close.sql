-- ?1 destination, ?2 session.
DELETE FROM postrider_breakers WHERE destination_id = ?1 AND session_id = ?2;
