-- ?1 destination, ?2 position.
SELECT a.attempt_id, r.accepted_at, r.shared, r.number, r.late
FROM postrider_duplicate_receipts AS r
JOIN postrider_attempts AS a USING (attempt)
WHERE r.destination_id = ?1 AND r.position = ?2
ORDER BY r.accepted_at, a.attempt_id, r.shared, r.number;
