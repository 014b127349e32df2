-- The same thing seen again is the same finding.
-- ?1 code, ?2 destination, ?3 position, ?4 attempt id, ?5 event id, ?6 detail, ?7 now.
INSERT INTO postrider_findings (
    code, destination_id, position, attempt_id, event_id, detail, first_seen, last_seen
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
ON CONFLICT (code, destination_id, position, detail) DO UPDATE SET last_seen = excluded.last_seen;
