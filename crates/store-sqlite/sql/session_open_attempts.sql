-- ?1 session.
SELECT a.attempt, a.destination_id, a.registered_at, d.on_unknown
FROM postrider_open_attempts AS o
JOIN postrider_attempts AS a USING (attempt)
JOIN postrider_destinations AS d USING (destination_id)
WHERE o.session_id = ?1
ORDER BY a.attempt;
