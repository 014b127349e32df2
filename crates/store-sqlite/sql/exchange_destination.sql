-- ?1 destination.
SELECT
    d.ordering,
    d.on_quarantine,
    EXISTS (SELECT 1 FROM postrider_suspensions AS s WHERE s.destination_id = d.destination_id)
FROM postrider_destinations AS d
WHERE d.destination_id = ?1;
