-- The event types that may be appended, as one JSON text.
select {schema}.event_registry()::text
