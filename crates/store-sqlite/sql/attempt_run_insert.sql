-- ?1 destination, ?2 first position, ?3 attempt, ?4 length.
INSERT INTO postrider_attempt_runs (destination_id, first, attempt, length)
VALUES (?1, ?2, ?3, ?4);
