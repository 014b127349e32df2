-- ?1 session, ?2 owner, ?3 version, ?4 exclusive, ?5 now, ?6 end of the lease.
INSERT INTO postrider_sessions (session_id, owner, version, exclusive, opened_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);
