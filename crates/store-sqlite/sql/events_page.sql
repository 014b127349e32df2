-- ?1 after, ?2 limit, ?3 event type, ?4 tenant, ?5 aggregate type, ?6 aggregate id,
-- ?7 partition key; null: any.
SELECT
    e.position, e.event_id, e.envelope, e.appended_at,
    (
        SELECT count(*)
        FROM postrider_delivery_set_members AS m
        JOIN postrider_deliveries AS o
            ON o.destination_id = m.destination_id AND o.position = e.position
        WHERE m.version = e.delivery_set
            AND m.event_type = e.event_type
            AND m.schema_version = e.schema_version
    )
FROM postrider_events AS e
WHERE e.position > ?1
    AND (?3 IS NULL OR e.event_type = ?3)
    AND (?4 IS NULL OR e.tenant = ?4)
    AND (?5 IS NULL OR e.aggregate_type = ?5)
    AND (?6 IS NULL OR e.aggregate_id = ?6)
    AND (?7 IS NULL OR e.partition_key = ?7)
ORDER BY e.position
LIMIT ?2;
