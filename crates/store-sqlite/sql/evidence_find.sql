-- What is registered where evidence points.
-- ?1 attempt id, ?2 destination, ?3 position.
SELECT a.attempt, e.event_id, e.envelope, d.digest, d.ordering
FROM postrider_attempts AS a
JOIN postrider_attempt_runs AS r
    ON r.attempt = a.attempt AND r.first <= ?3 AND r.first + r.length > ?3
JOIN postrider_events AS e ON e.position = ?3
JOIN postrider_destinations AS d ON d.destination_id = a.destination_id
WHERE a.attempt_id = ?1 AND a.destination_id = ?2;
