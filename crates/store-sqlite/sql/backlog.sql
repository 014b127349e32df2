-- One row per destination. ?1 now, ?2 most to count.
SELECT
    d.destination_id,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM postrider_deliveries AS o
            WHERE o.destination_id = d.destination_id AND o.state = 0
            LIMIT ?2
        )
    ),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM postrider_deliveries AS o
            WHERE o.destination_id = d.destination_id AND o.state = 1 AND o.state <> 0
            LIMIT ?2
        )
    ),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM postrider_deliveries AS o
            WHERE o.destination_id = d.destination_id AND o.state = 2 AND o.state <> 0
            LIMIT ?2
        )
    ),
    (
        SELECT ?1 - e.appended_at
        FROM postrider_deliveries AS o
        JOIN postrider_events AS e ON e.position = o.position
        WHERE o.destination_id = d.destination_id AND o.state = 0
        ORDER BY o.position
        LIMIT 1
    ),
    d.lanes,
    (
        SELECT count(*) FROM postrider_lanes AS l
        WHERE l.destination_id = d.destination_id AND l.session_id IS NOT NULL
    ),
    b.session_id, b.since, b.code, b.detail, b.next_probe_at, b.refused
FROM postrider_destinations AS d
-- Of several reports, the one open longest; refusals last.
LEFT JOIN postrider_breakers AS b
    ON b.destination_id = d.destination_id
    AND b.session_id = (
        SELECT first.session_id FROM postrider_breakers AS first
        WHERE first.destination_id = d.destination_id
        ORDER BY first.refused, first.since, first.session_id
        LIMIT 1
    )
ORDER BY d.destination_id;
