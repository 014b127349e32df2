-- ?1 event id.
SELECT
    position, event_id, envelope, envelope_digest, traceparent, tracestate, headers, appended_at,
    payload, key_hash
FROM postrider_events
WHERE event_id = ?1;
