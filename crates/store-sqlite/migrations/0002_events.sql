-- Events, and the open deliveries that exist by construction: the trigger on events writes them,
-- whoever inserts an event and by whatever path (I2).

CREATE TABLE postrider_events (
    -- AUTOINCREMENT: a position is never used again, even after rows were purged. There is one
    -- writer at a time, so positions become visible in order.
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    tenant TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    partition_key TEXT NOT NULL,
    -- SQLite has no SHA-256, so the writer hashes.
    key_hash INTEGER NOT NULL,
    -- RFC 8785 JSON of postrider.envelope/1: exactly the bytes under the digest.
    envelope TEXT NOT NULL,
    -- jcs-sha256-v1
    envelope_digest BLOB NOT NULL,
    payload BLOB NOT NULL,
    -- [["name","value"], …] sorted by name; null when there are none.
    headers TEXT,
    traceparent TEXT,
    tracestate TEXT,
    delivery_set INTEGER NOT NULL,
    appended_at INTEGER NOT NULL,
    FOREIGN KEY (delivery_set, event_type, schema_version) REFERENCES postrider_delivery_set_events,
    CONSTRAINT event_id_is_a_uuid CHECK (length(event_id) = 36 AND event_id = lower(event_id)),
    CONSTRAINT key_hash_not_negative CHECK (key_hash >= 0),
    CONSTRAINT digest_is_sha256 CHECK (length(envelope_digest) = 32),
    CONSTRAINT appended_at_is_writable
        CHECK (appended_at BETWEEN -62135596800000000 AND 253402300799999999)
) STRICT;

-- Lists by key, and what came after a delivery of its key.
CREATE INDEX postrider_events_key ON postrider_events (key_hash, position);

-- Open deliveries only: a delivery that is acknowledged has no row here, and its receipt is its
-- state. As small as the backlog.
CREATE TABLE postrider_deliveries (
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    position INTEGER NOT NULL REFERENCES postrider_events,
    key_hash INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    -- 0 pending, 1 unknown, 2 quarantined
    state INTEGER NOT NULL DEFAULT 0,
    -- Charged since append or replay.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Counts only for rows that waited; all others are due at once, whatever the clock does.
    available_at INTEGER NOT NULL,
    -- It failed before (charged or not), was replayed, or is the next one of a key that was held:
    -- the key hold looks at these rows alone.
    waited INTEGER NOT NULL DEFAULT 0,
    -- When the first attempt that did not end well was registered.
    first_attempt_at INTEGER,
    PRIMARY KEY (destination_id, position),
    CONSTRAINT state_is_known CHECK (state BETWEEN 0 AND 2),
    CONSTRAINT attempts_not_negative CHECK (attempts >= 0),
    CONSTRAINT waited_is_boolean CHECK (waited IN (0, 1)),
    CONSTRAINT exception_has_waited CHECK (waited = 1 OR (state = 0 AND attempts = 0)),
    CONSTRAINT available_at_is_writable
        CHECK (available_at BETWEEN -62135596800000000 AND 253402300799999999)
) STRICT, WITHOUT ROWID;

-- The key hold of fetch.
CREATE INDEX postrider_deliveries_exceptions
    ON postrider_deliveries (destination_id, key_hash, position) WHERE waited = 1;
-- When the next retry is due.
CREATE INDEX postrider_deliveries_due
    ON postrider_deliveries (destination_id, available_at) WHERE waited = 1 AND state = 0;
-- Lists and counts of unknown and quarantined deliveries.
CREATE INDEX postrider_deliveries_stuck
    ON postrider_deliveries (destination_id, state, position) WHERE state <> 0;

-- The limit is checked before the event is written, so that the message can name it.
CREATE TRIGGER postrider_events_fit BEFORE INSERT ON postrider_events
WHEN EXISTS (
    SELECT 1
    FROM postrider_delivery_set_members AS m
    JOIN postrider_destinations AS d USING (destination_id)
    WHERE m.version = new.delivery_set
        AND m.event_type = new.event_type
        AND m.schema_version = new.schema_version
        AND length(new.payload) > d.max_payload_bytes
)
BEGIN SELECT RAISE(ABORT, 'postrider: the payload is over the limit of a destination'); END;

-- Also with foreign keys off, as they are on an application's connection by default.
CREATE TRIGGER postrider_events_known BEFORE INSERT ON postrider_events
WHEN NOT EXISTS (
    SELECT 1 FROM postrider_delivery_set_events AS e
    WHERE e.version = new.delivery_set
        AND e.event_type = new.event_type
        AND e.schema_version = new.schema_version
)
BEGIN SELECT RAISE(ABORT, 'postrider: the event type is not in the delivery set; register it with `postrider apply`'); END;

CREATE TRIGGER postrider_events_prescribe AFTER INSERT ON postrider_events
BEGIN
    INSERT INTO postrider_deliveries (destination_id, position, key_hash, lane, available_at)
    SELECT d.destination_id, new.position, new.key_hash, new.key_hash % d.lanes, new.appended_at
    FROM postrider_delivery_set_members AS m
    JOIN postrider_destinations AS d USING (destination_id)
    WHERE m.version = new.delivery_set
        AND m.event_type = new.event_type
        AND m.schema_version = new.schema_version;
END;

-- INSERT OR REPLACE would delete the earlier event without asking the triggers below.
CREATE TRIGGER postrider_events_once BEFORE INSERT ON postrider_events
WHEN EXISTS (
    SELECT 1 FROM postrider_events AS e
    WHERE e.event_id = new.event_id OR e.position = new.position
)
BEGIN SELECT RAISE(ABORT, 'postrider: an event id is never used twice'); END;

CREATE TRIGGER postrider_events_stay BEFORE UPDATE ON postrider_events
BEGIN SELECT RAISE(ABORT, 'postrider: an event never changes; append another one'); END;
CREATE TRIGGER postrider_events_remain BEFORE DELETE ON postrider_events
BEGIN SELECT RAISE(ABORT, 'postrider: an event is evidence and is not deleted'); END;
CREATE TRIGGER postrider_deliveries_identity BEFORE UPDATE OF destination_id, position, key_hash, lane
    ON postrider_deliveries
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery keeps its event, destination and lane'); END;
