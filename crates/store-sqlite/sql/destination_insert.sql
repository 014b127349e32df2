-- Numbered from 1 in order of registration.
-- ?1 name, ?2 generation, ?3 digest, ?4 canonical, ?5 lanes, ?6 ordering, ?7 on_unknown,
-- ?8 on_quarantine, ?9 max_payload_bytes.
INSERT INTO postrider_destinations (
    destination_id, name, generation, digest, canonical, lanes, ordering, on_unknown,
    on_quarantine, max_payload_bytes
)
SELECT ifnull(max(destination_id), 0) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
FROM postrider_destinations
RETURNING destination_id;
