-- The newest first. ?1 limit.
SELECT
    s.session_id, s.owner, s.version, s.exclusive, s.opened_at, s.expires_at, s.ended_at,
    s.ended_reason,
    (SELECT count(*) FROM postrider_lanes AS l WHERE l.session_id = s.session_id)
FROM postrider_sessions AS s
ORDER BY s.opened_at DESC, s.session_id
LIMIT ?1;
