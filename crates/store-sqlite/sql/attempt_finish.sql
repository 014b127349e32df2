-- ?1 attempt, ?2 now, ?3 reason, ?4 acknowledged, ?5 exceptions.
INSERT INTO postrider_attempt_finishes (attempt, finished_at, reason, acknowledged, exceptions)
VALUES (?1, ?2, ?3, ?4, ?5);
