-- Writes an event; a trigger writes its deliveries (I2).
INSERT INTO postrider_events (
    event_id, event_type, schema_version, tenant, aggregate_type, aggregate_id, partition_key,
    key_hash, envelope, envelope_digest, payload, headers, traceparent, tracestate, delivery_set,
    appended_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
RETURNING position;
