-- A member of an attempt whose session was lost: open, and by its destination's policy due at
-- once or unknown.
-- ?1 destination, ?2 position, ?3 when the attempt was registered, ?4 state, ?5 now.
UPDATE postrider_deliveries
SET first_attempt_at = ifnull(first_attempt_at, ?3),
    waited = 1,
    available_at = iif(state = 0 AND ?4 = 0, ?5, available_at),
    state = iif(state = 0, ?4, state)
WHERE destination_id = ?1 AND position = ?2;
