-- Wins the publish slots of a run of consecutive positions, each of which is a member: a row
-- that this does not delete had been won before (I5).
-- ?1 destination, ?2 first position, ?3 last position.
DELETE FROM postrider_deliveries WHERE destination_id = ?1 AND position BETWEEN ?2 AND ?3
RETURNING position, key_hash, state, waited;
