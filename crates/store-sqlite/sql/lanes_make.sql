-- ?1 destination, ?2 number of lanes.
WITH RECURSIVE numbers (lane) AS (
    SELECT 0
    UNION ALL
    SELECT lane + 1 FROM numbers WHERE lane + 1 < ?2
)
INSERT INTO postrider_lanes (destination_id, lane) SELECT ?1, lane FROM numbers;
