-- The primary receipt of a delivery. No run is longer than 1,000.
-- ?1 destination, ?2 position.
SELECT a.attempt_id, b.accepted_at, b.shared, r.number + (?2 - r.first), b.late
FROM postrider_receipt_runs AS r
JOIN postrider_receipt_batches AS b USING (receipt_batch)
JOIN postrider_attempts AS a USING (attempt)
WHERE r.destination_id = ?1
    AND r.first BETWEEN ?2 - 999 AND ?2
    AND r.first + r.length > ?2;
