-- ?1 attempt.
SELECT first, length FROM postrider_attempt_runs WHERE attempt = ?1 ORDER BY first;
