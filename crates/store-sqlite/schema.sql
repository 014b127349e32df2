-- The schema that the migrations make, for reading. A test compares it with them.

CREATE TABLE postrider_migrations (
    version INTEGER PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE postrider_destinations (
    destination_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    -- RFC 8785 JSON of postrider.destination/1: exactly the bytes under the digest.
    canonical TEXT NOT NULL,
    -- Copies of what statements need.
    lanes INTEGER NOT NULL,
    ordering TEXT NOT NULL,
    on_unknown TEXT NOT NULL,
    on_quarantine TEXT NOT NULL,
    max_payload_bytes INTEGER,
    UNIQUE (name, generation),
    CONSTRAINT generation_is_positive CHECK (generation >= 1),
    CONSTRAINT lanes_in_range CHECK (lanes BETWEEN 1 AND 1024),
    CONSTRAINT ordering_is_known CHECK (ordering IN ('none', 'key', 'strict')),
    CONSTRAINT on_unknown_is_known CHECK (on_unknown IN ('resend', 'probe', 'hold')),
    CONSTRAINT on_quarantine_is_known CHECK (on_quarantine IN ('hold', 'pass'))
) STRICT;

CREATE TABLE postrider_suspensions (
    destination_id INTEGER PRIMARY KEY REFERENCES postrider_destinations,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT;

CREATE TABLE postrider_event_types (
    event_type_id INTEGER PRIMARY KEY,
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    content_type TEXT NOT NULL,
    json_schema TEXT,
    schema_digest TEXT,
    CONSTRAINT digest_with_schema CHECK ((json_schema IS NULL) = (schema_digest IS NULL))
) STRICT;

CREATE INDEX postrider_event_types_name ON postrider_event_types (event_type, schema_version);

CREATE TABLE postrider_current_event_types (
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    event_type_id INTEGER NOT NULL REFERENCES postrider_event_types,
    PRIMARY KEY (event_type, schema_version)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_delivery_sets (
    version INTEGER PRIMARY KEY,
    digest TEXT NOT NULL,
    -- RFC 8785 JSON of postrider.delivery-set/1.
    canonical TEXT NOT NULL
) STRICT;

CREATE TABLE postrider_delivery_set_events (
    version INTEGER NOT NULL REFERENCES postrider_delivery_sets,
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    PRIMARY KEY (version, event_type, schema_version)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_delivery_set_members (
    version INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    PRIMARY KEY (version, event_type, schema_version, destination_id),
    FOREIGN KEY (version, event_type, schema_version) REFERENCES postrider_delivery_set_events
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_delivery_set_activations (
    activation_id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL REFERENCES postrider_delivery_sets,
    activated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE postrider_audit_log (
    audit_id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- How many things changed.
    changed INTEGER NOT NULL,
    CONSTRAINT action_is_known CHECK (action IN ('apply', 'resume_destination', 'replay'))
) STRICT;

CREATE TRIGGER postrider_destinations_once BEFORE INSERT ON postrider_destinations
WHEN EXISTS (
    SELECT 1 FROM postrider_destinations AS d
    WHERE (d.name = new.name AND d.generation = new.generation)
        OR d.digest = new.digest
        OR d.destination_id = new.destination_id
)
BEGIN SELECT RAISE(ABORT, 'postrider: a destination never changes; register a new generation'); END;

CREATE TRIGGER postrider_destinations_stay BEFORE UPDATE ON postrider_destinations
BEGIN SELECT RAISE(ABORT, 'postrider: a destination never changes; register a new generation'); END;

CREATE TRIGGER postrider_destinations_remain BEFORE DELETE ON postrider_destinations
BEGIN SELECT RAISE(ABORT, 'postrider: a destination is never deleted'); END;

CREATE TRIGGER postrider_event_types_stay BEFORE UPDATE ON postrider_event_types
BEGIN SELECT RAISE(ABORT, 'postrider: a registered event type never changes; register it again'); END;

CREATE TRIGGER postrider_event_types_remain BEFORE DELETE ON postrider_event_types
BEGIN SELECT RAISE(ABORT, 'postrider: a registered event type is never deleted'); END;

CREATE TRIGGER postrider_delivery_sets_stay BEFORE UPDATE ON postrider_delivery_sets
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set never changes; register a new version'); END;

CREATE TRIGGER postrider_delivery_sets_remain BEFORE DELETE ON postrider_delivery_sets
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set is never deleted'); END;

CREATE TRIGGER postrider_delivery_set_events_stay BEFORE UPDATE ON postrider_delivery_set_events
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set never changes; register a new version'); END;

CREATE TRIGGER postrider_delivery_set_events_remain BEFORE DELETE ON postrider_delivery_set_events
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set never changes; register a new version'); END;

CREATE TRIGGER postrider_delivery_set_members_stay BEFORE UPDATE ON postrider_delivery_set_members
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set never changes; register a new version'); END;

CREATE TRIGGER postrider_delivery_set_members_remain BEFORE DELETE ON postrider_delivery_set_members
BEGIN SELECT RAISE(ABORT, 'postrider: a delivery set never changes; register a new version'); END;

CREATE TRIGGER postrider_delivery_set_activations_stay BEFORE UPDATE ON postrider_delivery_set_activations
BEGIN SELECT RAISE(ABORT, 'postrider: an activation is history; activate again'); END;

CREATE TRIGGER postrider_delivery_set_activations_remain BEFORE DELETE ON postrider_delivery_set_activations
BEGIN SELECT RAISE(ABORT, 'postrider: an activation is history; activate again'); END;

CREATE TRIGGER postrider_audit_log_stays BEFORE UPDATE ON postrider_audit_log
BEGIN SELECT RAISE(ABORT, 'postrider: the audit log is append-only'); END;

CREATE TRIGGER postrider_audit_log_remains BEFORE DELETE ON postrider_audit_log
BEGIN SELECT RAISE(ABORT, 'postrider: the audit log is append-only'); END;

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

CREATE INDEX postrider_events_key ON postrider_events (key_hash, position);

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

CREATE INDEX postrider_deliveries_exceptions
    ON postrider_deliveries (destination_id, key_hash, position) WHERE waited = 1;

CREATE INDEX postrider_deliveries_due
    ON postrider_deliveries (destination_id, available_at) WHERE waited = 1 AND state = 0;

CREATE INDEX postrider_deliveries_stuck
    ON postrider_deliveries (destination_id, state, position) WHERE state <> 0;

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

CREATE TABLE postrider_sessions (
    session_id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version TEXT NOT NULL,
    exclusive INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    asleep INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER,
    ended_reason TEXT,
    CONSTRAINT exclusive_is_boolean CHECK (exclusive IN (0, 1)),
    CONSTRAINT asleep_is_boolean CHECK (asleep IN (0, 1)),
    CONSTRAINT ended_with_reason CHECK ((ended_at IS NULL) = (ended_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX postrider_sessions_exclusive
    ON postrider_sessions (exclusive) WHERE exclusive = 1 AND ended_at IS NULL;

CREATE INDEX postrider_sessions_open
    ON postrider_sessions (expires_at, session_id) WHERE ended_at IS NULL;

CREATE INDEX postrider_sessions_opened ON postrider_sessions (opened_at, session_id);

CREATE TABLE postrider_session_destinations (
    session_id TEXT NOT NULL REFERENCES postrider_sessions,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    PRIMARY KEY (session_id, destination_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_lanes (
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    lane INTEGER NOT NULL,
    session_id TEXT REFERENCES postrider_sessions,
    since INTEGER,
    PRIMARY KEY (destination_id, lane),
    CONSTRAINT held_since CHECK ((session_id IS NULL) = (since IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX postrider_lanes_session ON postrider_lanes (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE postrider_breakers (
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    session_id TEXT NOT NULL REFERENCES postrider_sessions,
    since INTEGER NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    next_probe_at INTEGER NOT NULL, refused INTEGER NOT NULL DEFAULT 0
    CONSTRAINT refused_is_boolean CHECK (refused IN (0, 1)),
    PRIMARY KEY (destination_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX postrider_breakers_session ON postrider_breakers (session_id);

CREATE TABLE postrider_attempts (
    attempt INTEGER PRIMARY KEY,
    attempt_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES postrider_sessions,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    registered_at INTEGER NOT NULL
) STRICT;

CREATE TABLE postrider_attempt_runs (
    destination_id INTEGER NOT NULL,
    first INTEGER NOT NULL,
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    length INTEGER NOT NULL,
    PRIMARY KEY (destination_id, first, attempt),
    CONSTRAINT length_in_range CHECK (length BETWEEN 1 AND 1000)
) STRICT, WITHOUT ROWID;

CREATE INDEX postrider_attempt_runs_attempt ON postrider_attempt_runs (attempt, first);

CREATE TABLE postrider_open_attempts (
    session_id TEXT NOT NULL,
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    PRIMARY KEY (session_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_attempt_finishes (
    attempt INTEGER PRIMARY KEY REFERENCES postrider_attempts,
    finished_at INTEGER NOT NULL,
    -- settled, lease_expired_unknown, or why the session was ended
    reason TEXT NOT NULL,
    acknowledged INTEGER NOT NULL,
    exceptions INTEGER NOT NULL
) STRICT;

CREATE TABLE postrider_attempt_exceptions (
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    position INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (attempt, position),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('retry', 'unknown', 'quarantined')),
    CONSTRAINT detail_is_bounded CHECK (length(CAST(detail AS BLOB)) <= 512)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_receipt_batches (
    receipt_batch INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    accepted_at INTEGER NOT NULL,
    -- Canonical JSON of the receipt without its number.
    shared TEXT NOT NULL,
    -- Came by the evidence path.
    late INTEGER NOT NULL,
    CONSTRAINT late_is_boolean CHECK (late IN (0, 1))
) STRICT;

CREATE TABLE postrider_receipt_runs (
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    first INTEGER NOT NULL,
    length INTEGER NOT NULL,
    -- The number of the first member; null where this kind of receipt has no number.
    number INTEGER,
    receipt_batch INTEGER NOT NULL REFERENCES postrider_receipt_batches,
    PRIMARY KEY (destination_id, first),
    CONSTRAINT length_in_range CHECK (length BETWEEN 1 AND 1000)
) STRICT, WITHOUT ROWID;

CREATE TABLE postrider_duplicate_receipts (
    duplicate INTEGER PRIMARY KEY,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    position INTEGER NOT NULL,
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    accepted_at INTEGER NOT NULL,
    shared TEXT NOT NULL,
    number INTEGER,
    late INTEGER NOT NULL,
    CONSTRAINT late_is_boolean CHECK (late IN (0, 1))
) STRICT;

CREATE UNIQUE INDEX postrider_duplicate_receipts_once
    ON postrider_duplicate_receipts (destination_id, position, attempt, shared, ifnull(number, -1));

CREATE TABLE postrider_quarantine (
    quarantine INTEGER PRIMARY KEY,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    position INTEGER NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    since INTEGER NOT NULL,
    resolved_at INTEGER,
    -- receipt, or the person who replayed it
    resolved_by TEXT,
    CONSTRAINT resolved_by_someone CHECK ((resolved_at IS NULL) = (resolved_by IS NULL)),
    CONSTRAINT detail_is_bounded CHECK (length(CAST(detail AS BLOB)) <= 512)
) STRICT;

CREATE UNIQUE INDEX postrider_quarantine_open
    ON postrider_quarantine (destination_id, position) WHERE resolved_at IS NULL;

CREATE TABLE postrider_findings (
    finding INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    destination_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    attempt_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    resolved_at INTEGER,
    UNIQUE (code, destination_id, position, detail)
) STRICT;

CREATE TRIGGER postrider_attempts_stay BEFORE UPDATE ON postrider_attempts
BEGIN SELECT RAISE(ABORT, 'postrider: an attempt is history'); END;

CREATE TRIGGER postrider_attempts_remain BEFORE DELETE ON postrider_attempts
BEGIN SELECT RAISE(ABORT, 'postrider: an attempt is history'); END;

CREATE TRIGGER postrider_attempt_runs_stay BEFORE UPDATE ON postrider_attempt_runs
BEGIN SELECT RAISE(ABORT, 'postrider: an attempt is history'); END;

CREATE TRIGGER postrider_attempt_runs_remain BEFORE DELETE ON postrider_attempt_runs
BEGIN SELECT RAISE(ABORT, 'postrider: an attempt is history'); END;

CREATE TRIGGER postrider_attempt_finishes_stay BEFORE UPDATE ON postrider_attempt_finishes
BEGIN SELECT RAISE(ABORT, 'postrider: the end of an attempt is history'); END;

CREATE TRIGGER postrider_attempt_finishes_remain BEFORE DELETE ON postrider_attempt_finishes
BEGIN SELECT RAISE(ABORT, 'postrider: the end of an attempt is history'); END;

CREATE TRIGGER postrider_attempt_exceptions_stay BEFORE UPDATE ON postrider_attempt_exceptions
BEGIN SELECT RAISE(ABORT, 'postrider: the end of an attempt is history'); END;

CREATE TRIGGER postrider_attempt_exceptions_remain BEFORE DELETE ON postrider_attempt_exceptions
BEGIN SELECT RAISE(ABORT, 'postrider: the end of an attempt is history'); END;

CREATE TRIGGER postrider_receipt_batches_stay BEFORE UPDATE ON postrider_receipt_batches
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_receipt_batches_remain BEFORE DELETE ON postrider_receipt_batches
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_receipt_runs_stay BEFORE UPDATE ON postrider_receipt_runs
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_receipt_runs_remain BEFORE DELETE ON postrider_receipt_runs
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_duplicate_receipts_stay BEFORE UPDATE ON postrider_duplicate_receipts
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_duplicate_receipts_remain BEFORE DELETE ON postrider_duplicate_receipts
BEGIN SELECT RAISE(ABORT, 'postrider: a receipt is evidence'); END;

CREATE TRIGGER postrider_quarantine_stays BEFORE UPDATE OF destination_id, position, code, detail, since
    ON postrider_quarantine
BEGIN SELECT RAISE(ABORT, 'postrider: why something was quarantined is history'); END;

CREATE TRIGGER postrider_quarantine_remains BEFORE DELETE ON postrider_quarantine
BEGIN SELECT RAISE(ABORT, 'postrider: why something was quarantined is history'); END;
