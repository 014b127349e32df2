-- ?1 session, ?2 now.
SELECT
    mine.destination_id,
    d.lanes,
    (
        SELECT count(*)
        FROM postrider_sessions AS s
        JOIN postrider_session_destinations AS serves USING (session_id)
        WHERE s.ended_at IS NULL
            AND s.expires_at > ?2
            AND serves.destination_id = mine.destination_id
            AND NOT EXISTS (
                SELECT 1 FROM postrider_breakers AS b
                WHERE b.destination_id = mine.destination_id
                    AND b.session_id = s.session_id
                    AND b.refused = 1
            )
    ) AS sessions,
    (
        SELECT count(*) FROM postrider_lanes AS l
        WHERE l.destination_id = mine.destination_id AND l.session_id IS NULL
    ) AS free,
    EXISTS (
        SELECT 1 FROM postrider_suspensions AS x WHERE x.destination_id = mine.destination_id
    ) AS suspended
FROM postrider_session_destinations AS mine
JOIN postrider_destinations AS d USING (destination_id)
WHERE mine.session_id = ?1
ORDER BY mine.destination_id;
