-- Every delivery that the event's frozen delivery set prescribes, open or not. ?1 position.
SELECT
    d.destination_id, e.key_hash % d.lanes, o.state, o.attempts, o.available_at, q.code, q.detail,
    q.since
FROM postrider_events AS e
JOIN postrider_delivery_set_members AS m
    ON m.version = e.delivery_set
    AND m.event_type = e.event_type
    AND m.schema_version = e.schema_version
JOIN postrider_destinations AS d USING (destination_id)
LEFT JOIN postrider_deliveries AS o
    ON o.destination_id = d.destination_id AND o.position = e.position
LEFT JOIN postrider_quarantine AS q
    ON q.destination_id = d.destination_id AND q.position = e.position AND q.resolved_at IS NULL
WHERE e.position = ?1
ORDER BY d.destination_id;
