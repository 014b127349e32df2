SELECT
    t.event_type_id,
    t.event_type,
    t.schema_version,
    t.content_type,
    t.json_schema,
    c.event_type_id IS NOT NULL AS current
FROM postrider_event_types AS t
LEFT JOIN postrider_current_event_types AS c USING (event_type_id)
ORDER BY t.event_type, t.schema_version, t.event_type_id;
