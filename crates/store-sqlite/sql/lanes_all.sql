SELECT l.destination_id, l.lane, l.session_id, s.owner, l.since
FROM postrider_lanes AS l
LEFT JOIN postrider_sessions AS s USING (session_id)
ORDER BY l.destination_id, l.lane;
