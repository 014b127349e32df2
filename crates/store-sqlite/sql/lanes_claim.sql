-- The lowest free lanes, of a destination that the session serves.
-- ?1 session, ?2 destination, ?3 how many, ?4 now.
UPDATE postrider_lanes SET session_id = ?1, since = ?4
WHERE destination_id = ?2 AND lane IN (
    SELECT l.lane FROM postrider_lanes AS l
    WHERE l.destination_id = ?2
        AND l.session_id IS NULL
        AND EXISTS (
            SELECT 1 FROM postrider_session_destinations AS serves
            WHERE serves.session_id = ?1 AND serves.destination_id = ?2
        )
    ORDER BY l.lane
    LIMIT ?3
)
RETURNING lane;
