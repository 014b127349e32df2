-- The outcome of an attempt that did not end well changes a pending delivery only.
-- ?1 destination, ?2 position, ?3 when the attempt was registered, ?4 state, ?5 attempts or null
-- to leave them, ?6 available at or null to leave it.
UPDATE postrider_deliveries
SET first_attempt_at = ifnull(first_attempt_at, ?3),
    waited = 1,
    state = iif(state = 0, ?4, state),
    attempts = iif(state = 0, ifnull(?5, attempts), attempts),
    available_at = iif(state = 0, ifnull(?6, available_at), available_at)
WHERE destination_id = ?1 AND position = ?2;
