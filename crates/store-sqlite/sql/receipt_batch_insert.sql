-- ?1 attempt, ?2 now, ?3 shared part, ?4 late.
INSERT INTO postrider_receipt_batches (attempt, accepted_at, shared, late)
VALUES (?1, ?2, ?3, ?4)
RETURNING receipt_batch;
