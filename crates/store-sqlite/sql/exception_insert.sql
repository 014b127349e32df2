-- ?1 attempt, ?2 position, ?3 outcome, ?4 code, ?5 detail.
INSERT INTO postrider_attempt_exceptions (attempt, position, outcome, code, detail)
VALUES (?1, ?2, ?3, ?4, ?5);
