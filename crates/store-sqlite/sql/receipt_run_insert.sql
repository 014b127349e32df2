-- ?1 destination, ?2 first position, ?3 length, ?4 first number, ?5 batch.
INSERT INTO postrider_receipt_runs (destination_id, first, length, number, receipt_batch)
VALUES (?1, ?2, ?3, ?4, ?5);
