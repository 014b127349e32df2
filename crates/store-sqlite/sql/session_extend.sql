-- No row: it has ended. ?1 session, ?2 now, ?3 end of the lease.
UPDATE postrider_sessions SET expires_at = ?3
WHERE session_id = ?1 AND ended_at IS NULL AND expires_at > ?2;
