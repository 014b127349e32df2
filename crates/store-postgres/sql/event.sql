-- $1 event id.
select e.position, e.event_id, e.envelope, e.envelope_digest, e.payload, e.traceparent,
    e.tracestate, e.headers, e.appended_at, {schema}.key_hash(e.partition_key) as key_hash
from {schema}.events e
where e.event_id = $1::uuid
