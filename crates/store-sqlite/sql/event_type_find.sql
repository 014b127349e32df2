-- A registration with this very content, and whether it is current.
-- ?1 type, ?2 version, ?3 content type, ?4 JSON Schema.
SELECT
    t.event_type_id,
    EXISTS (
        SELECT 1 FROM postrider_current_event_types AS c WHERE c.event_type_id = t.event_type_id
    )
FROM postrider_event_types AS t
WHERE t.event_type = ?1 AND t.schema_version = ?2 AND t.content_type = ?3 AND t.json_schema IS ?4;
