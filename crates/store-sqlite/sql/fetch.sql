-- What is due, in position order: a scan of the primary key with one probe of the exceptions
-- index per candidate. Read as far as wanted: the payload of a row that is not taken is not read.
-- ?1 destination, ?2 now, ?3 after, ?4 lanes, ?5 exclude, ?6 busy keys (JSON arrays), ?7 whether
-- it orders by key, ?8 whether quarantine holds, ?9 limit.
SELECT
    d.position, d.lane, d.key_hash, d.attempts, d.first_attempt_at,
    e.event_id, e.envelope, e.envelope_digest, e.traceparent, e.tracestate, e.headers,
    e.appended_at, length(e.payload), e.payload
FROM postrider_deliveries AS d
CROSS JOIN postrider_events AS e ON e.position = d.position
WHERE d.destination_id = ?1
    AND d.position > ?3
    AND d.state = 0
    AND (d.waited = 0 OR d.available_at <= ?2)
    AND d.lane IN (SELECT value FROM json_each(?4))
    AND d.position NOT IN (SELECT value FROM json_each(?5))
    AND d.key_hash NOT IN (SELECT value FROM json_each(?6))
    AND (NOT ?7 OR NOT EXISTS (
        -- Named, or SQLite reads all earlier deliveries for each candidate.
        SELECT 1 FROM postrider_deliveries AS h INDEXED BY postrider_deliveries_exceptions
        WHERE h.destination_id = d.destination_id
            AND h.key_hash = d.key_hash
            AND h.position < d.position
            AND h.waited = 1
            AND CASE h.state
                -- Waits for its retry; or is due again, and below this scan. Not if the caller has
                -- it in hand, whatever a clock that stepped back says.
                WHEN 0 THEN (h.available_at > ?2 OR h.position <= ?3)
                    AND h.position NOT IN (SELECT value FROM json_each(?5))
                WHEN 1 THEN TRUE
                ELSE ?8
            END
    ))
ORDER BY d.position
LIMIT ?9;
