-- ?1 session.
UPDATE postrider_lanes SET session_id = NULL, since = NULL WHERE session_id = ?1;
