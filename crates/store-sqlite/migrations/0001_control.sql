-- What is registered: destinations, event types, delivery sets, and who changed them.
--
-- An application's own tables live in the same file (its transaction covers both), so every name
-- starts with postrider_. Times are microseconds since 1970 in UTC.

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

-- Destinations to which nothing is sent until a person resumes them.
CREATE TABLE postrider_suspensions (
    destination_id INTEGER PRIMARY KEY REFERENCES postrider_destinations,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT;

-- A changed JSON Schema of the same (type, version) is another registration.
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

-- The registration that appends use.
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

-- One row per obligation: two consumers of one destination are one delivery.
CREATE TABLE postrider_delivery_set_members (
    version INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    PRIMARY KEY (version, event_type, schema_version, destination_id),
    FOREIGN KEY (version, event_type, schema_version) REFERENCES postrider_delivery_set_events
) STRICT, WITHOUT ROWID;

-- The last one is active.
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

-- INSERT OR REPLACE would delete the earlier row without asking the triggers below.
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
