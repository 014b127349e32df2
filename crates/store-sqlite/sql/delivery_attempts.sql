-- The newest attempts of a delivery, newest first. No run is longer than 1,000.
-- ?1 destination, ?2 position, ?3 how many.
SELECT
    a.attempt_id, a.session_id, s.owner, a.registered_at, f.finished_at, x.code, x.detail,
    min(s.expires_at, ifnull(s.ended_at, s.expires_at))
FROM postrider_attempt_runs AS r
JOIN postrider_attempts AS a USING (attempt)
JOIN postrider_sessions AS s USING (session_id)
LEFT JOIN postrider_attempt_finishes AS f USING (attempt)
LEFT JOIN postrider_attempt_exceptions AS x ON x.attempt = a.attempt AND x.position = ?2
WHERE r.destination_id = ?1
    AND r.first BETWEEN ?2 - 999 AND ?2
    AND r.first + r.length > ?2
ORDER BY a.registered_at DESC, a.attempt_id DESC
LIMIT ?3;
