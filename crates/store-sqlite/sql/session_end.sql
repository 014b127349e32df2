-- No row: it had ended. ?1 session, ?2 now, ?3 reason.
UPDATE postrider_sessions SET ended_at = ?2, ended_reason = ?3, asleep = 0
WHERE session_id = ?1 AND ended_at IS NULL
RETURNING owner;
