-- Whether the attempt brought a receipt for a position, primary or duplicate.
-- ?1 destination, ?2 position, ?3 attempt.
SELECT EXISTS (
    SELECT 1
    FROM postrider_receipt_runs AS r
    JOIN postrider_receipt_batches AS b USING (receipt_batch)
    WHERE r.destination_id = ?1
        AND r.first BETWEEN ?2 - 999 AND ?2
        AND r.first + r.length > ?2
        AND b.attempt = ?3
) OR EXISTS (
    SELECT 1 FROM postrider_duplicate_receipts
    WHERE destination_id = ?1 AND position = ?2 AND attempt = ?3
);
