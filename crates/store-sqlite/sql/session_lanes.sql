-- ?1 session, ?2 destination.
SELECT lane FROM postrider_lanes WHERE session_id = ?1 AND destination_id = ?2 ORDER BY lane;
