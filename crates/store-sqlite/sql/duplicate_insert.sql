-- The same evidence is kept once.
-- ?1 destination, ?2 position, ?3 attempt, ?4 now, ?5 shared part, ?6 number, ?7 late.
INSERT INTO postrider_duplicate_receipts (
    destination_id, position, attempt, accepted_at, shared, number, late
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT DO NOTHING;
