SELECT
    d.destination_id,
    d.canonical,
    d.digest,
    NOT EXISTS (
        SELECT 1 FROM postrider_destinations AS newer
        WHERE newer.name = d.name AND newer.generation > d.generation
    ) AS current,
    s.code,
    s.detail,
    s.since
FROM postrider_destinations AS d
LEFT JOIN postrider_suspensions AS s USING (destination_id)
ORDER BY d.destination_id;
