-- ?1 session, ?2 destination, ?3 lanes as a JSON array.
UPDATE postrider_lanes SET session_id = NULL, since = NULL
WHERE session_id = ?1 AND destination_id = ?2 AND lane IN (SELECT value FROM json_each(?3));
