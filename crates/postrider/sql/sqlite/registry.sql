-- The event types that the active delivery set serves, each with its JSON Schema and the tightest
-- limit of its destinations. No row: no delivery set is active. A row without an event type: the
-- active one serves none.
SELECT
    active.version, served.event_type, served.schema_version, t.content_type, t.json_schema,
    tight.name, tight.max_payload_bytes
FROM (
    SELECT version FROM postrider_delivery_set_activations ORDER BY activation_id DESC LIMIT 1
) AS active
LEFT JOIN postrider_delivery_set_events AS served USING (version)
LEFT JOIN postrider_current_event_types AS c
    ON c.event_type = served.event_type AND c.schema_version = served.schema_version
LEFT JOIN postrider_event_types AS t USING (event_type_id)
LEFT JOIN postrider_destinations AS tight ON tight.destination_id = (
    SELECT d.destination_id
    FROM postrider_delivery_set_members AS m
    JOIN postrider_destinations AS d USING (destination_id)
    WHERE m.version = served.version
        AND m.event_type = served.event_type
        AND m.schema_version = served.schema_version
        AND d.max_payload_bytes IS NOT NULL
    ORDER BY d.max_payload_bytes, d.name
    LIMIT 1
)
ORDER BY served.event_type, served.schema_version
