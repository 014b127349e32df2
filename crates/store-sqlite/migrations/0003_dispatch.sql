-- Sessions, lanes, attempts and their outcomes, receipts, quarantine.

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

-- What workers last said of their circuit breakers.
CREATE TABLE postrider_breakers (
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    session_id TEXT NOT NULL REFERENCES postrider_sessions,
    since INTEGER NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    next_probe_at INTEGER NOT NULL,
    PRIMARY KEY (destination_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX postrider_breakers_session ON postrider_breakers (session_id);

-- One row per batch, written before its first byte leaves (I4).
CREATE TABLE postrider_attempts (
    attempt INTEGER PRIMARY KEY,
    attempt_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES postrider_sessions,
    destination_id INTEGER NOT NULL REFERENCES postrider_destinations,
    registered_at INTEGER NOT NULL
) STRICT;

-- The members of an attempt: runs of consecutive positions, first, first + 1, … (length of them).
-- No run is longer than 1,000, so the attempts of one position are found in a bounded stretch of
-- the index. Rows, where Postgres packs arrays: SQLite reads rows of a covering index as fast as
-- it would unpack anything.
CREATE TABLE postrider_attempt_runs (
    destination_id INTEGER NOT NULL,
    first INTEGER NOT NULL,
    attempt INTEGER NOT NULL REFERENCES postrider_attempts,
    length INTEGER NOT NULL,
    PRIMARY KEY (destination_id, first, attempt),
    CONSTRAINT length_in_range CHECK (length BETWEEN 1 AND 1000)
) STRICT, WITHOUT ROWID;

CREATE INDEX postrider_attempt_runs_attempt ON postrider_attempt_runs (attempt, first);

-- The attempts without a finish: as many as are in flight, so that recovery reads no history.
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

-- One row per member that was not acknowledged.
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

-- Primary receipts: one row per (attempt, shared part), with its members as runs in which the
-- position and the receipt's number both advance by one.
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

-- Who wins a publish slot is decided by who deletes the open row (I5); this key makes a second
-- run at the same start impossible on top.
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

-- Receipts that found the publish slot taken. The same evidence is kept once.
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

-- What could not be settled, for people. Destination, position and attempt as the evidence named
-- them, which need not exist.
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
