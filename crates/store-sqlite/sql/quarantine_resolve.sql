-- ?1 destination, ?2 position, ?3 now, ?4 by whom.
UPDATE postrider_quarantine SET resolved_at = ?3, resolved_by = ?4
WHERE destination_id = ?1 AND position = ?2 AND resolved_at IS NULL;
