-- Sessions, lanes, attempts and their outcomes, receipts, quarantine.

create table {schema}.sessions (
    session_id uuid primary key,
    owner text collate "C" not null,
    version text collate "C" not null,
    exclusive boolean not null,
    serves integer[] not null,
    opened_at timestamptz not null,
    expires_at timestamptz not null,
    ended_at timestamptz,
    ended_reason text collate "C",
    constraint ended_with_reason check ((ended_at is null) = (ended_reason is null))
    -- Heartbeats stay in the page.
) with (fillfactor = 50);
create unique index sessions_exclusive on {schema}.sessions (exclusive)
    where exclusive and ended_at is null;
-- Not over expires_at: a heartbeat then changes no index.
create index sessions_open on {schema}.sessions (opened_at) where ended_at is null;
create index sessions_opened on {schema}.sessions (opened_at, session_id);

create table {schema}.lanes (
    destination_id integer not null references {schema}.destinations,
    lane smallint not null,
    session_id uuid references {schema}.sessions,
    since timestamptz,
    primary key (destination_id, lane),
    constraint held_since check ((session_id is null) = (since is null))
) with (fillfactor = 50);
create index lanes_session on {schema}.lanes (session_id) where session_id is not null;

-- What workers last said of their circuit breakers.
create table {schema}.breakers (
    session_id uuid not null references {schema}.sessions,
    destination_id integer not null references {schema}.destinations,
    since timestamptz not null,
    code text collate "C" not null,
    detail text collate "C" not null,
    next_probe_at timestamptz not null,
    primary key (session_id, destination_id)
);

-- Sessions that sleep and want the doorbell rung. Unlogged: after a crash nobody sleeps.
create unlogged table {schema}.sleepers (
    session_id uuid primary key,
    -- The end of the lease, so that a dead sleeper does not make every append ring for ever.
    until timestamptz not null
);

-- One row per batch, written before its first byte leaves. Members are packed as runs of
-- consecutive positions: run_starts[i], run_starts[i] + 1, … (run_lengths[i] of them).
create table {schema}.attempts (
    attempt_id uuid primary key,
    session_id uuid not null references {schema}.sessions,
    destination_id integer not null references {schema}.destinations,
    registered_at timestamptz not null,
    run_starts bigint[] not null,
    run_lengths integer[] not null,
    first_position bigint not null,
    last_position bigint not null,
    constraint runs_pair check (
        cardinality(run_starts) > 0 and cardinality(run_starts) = cardinality(run_lengths)
    ),
    constraint range_holds check (first_position = run_starts[1] and last_position >= first_position)
);
create index attempts_range on {schema}.attempts
    using gist (int8range(first_position, last_position, '[]'));

-- The attempts without a finish: as many as are in flight, so that recovery reads no history.
create table {schema}.open_attempts (
    attempt_id uuid primary key references {schema}.attempts,
    session_id uuid not null,
    destination_id integer not null
);
create index open_attempts_session on {schema}.open_attempts (session_id);

create table {schema}.attempt_finishes (
    attempt_id uuid primary key references {schema}.attempts,
    finished_at timestamptz not null,
    -- settled, lease_expired_unknown, or why the session was ended
    reason text collate "C" not null,
    acknowledged integer not null,
    exceptions integer not null
);

-- One row per member that was not acknowledged.
create table {schema}.attempt_exceptions (
    attempt_id uuid not null,
    position bigint not null,
    -- retry, unknown, quarantined
    outcome text collate "C" not null,
    code text collate "C" not null,
    detail text collate "C" not null,
    primary key (attempt_id, position),
    constraint outcome_is_known check (outcome in ('retry', 'unknown', 'quarantined')),
    constraint detail_is_bounded check (octet_length(detail) <= 512)
);

-- Primary receipts: one row per (attempt, shared part). Members are packed as runs in which the
-- position and the receipt's number both advance by one.
create table {schema}.receipt_batches (
    receipt_batch_id bigint generated always as identity primary key,
    attempt_id uuid not null references {schema}.attempts,
    destination_id integer not null references {schema}.destinations,
    accepted_at timestamptz not null,
    -- Canonical JSON of the receipt without its number.
    shared text collate "C" not null,
    run_starts bigint[] not null,
    run_lengths integer[] not null,
    -- The number of each run's first member; null where this kind of receipt has no number.
    run_numbers bigint[],
    first_position bigint not null,
    last_position bigint not null,
    -- Came by the evidence path.
    late boolean not null,
    constraint runs_pair check (
        cardinality(run_starts) > 0
        and cardinality(run_starts) = cardinality(run_lengths)
        and cardinality(run_starts) = coalesce(cardinality(run_numbers), cardinality(run_starts))
    ),
    constraint range_holds check (first_position = run_starts[1] and last_position >= first_position)
);
create index receipt_batches_range on {schema}.receipt_batches
    using gist (int8range(first_position, last_position, '[]'));

-- Receipts that found the publish slot taken.
create table {schema}.duplicate_receipts (
    attempt_id uuid not null references {schema}.attempts,
    position bigint not null,
    destination_id integer not null references {schema}.destinations,
    accepted_at timestamptz not null,
    shared text collate "C" not null,
    -- sha256 of the shared text, which can be longer than an index entry.
    shared_digest bytea not null,
    number bigint,
    late boolean not null
);
create unique index duplicate_receipts_once
    on {schema}.duplicate_receipts (position, attempt_id, shared_digest, coalesce(number, -1));

create table {schema}.quarantine (
    quarantine_id bigint generated always as identity primary key,
    destination_id integer not null references {schema}.destinations,
    position bigint not null,
    event_id uuid not null,
    code text collate "C" not null,
    detail text collate "C" not null,
    since timestamptz not null,
    resolved_at timestamptz,
    -- receipt, or the person who replayed it
    resolved_by text collate "C",
    constraint resolved_by_someone check ((resolved_at is null) = (resolved_by is null)),
    constraint detail_is_bounded check (octet_length(detail) <= 512)
);
create unique index quarantine_open on {schema}.quarantine (destination_id, position)
    where resolved_at is null;
create index quarantine_event on {schema}.quarantine (event_id);

create table {schema}.findings (
    finding_id bigint generated always as identity primary key,
    code text collate "C" not null,
    destination_id integer,
    position bigint,
    detail text collate "C" not null,
    -- sha256 of the detail: the same thing seen again is the same finding.
    detail_digest bytea not null,
    first_seen timestamptz not null,
    last_seen timestamptz not null,
    resolved_at timestamptz,
    constraint detail_is_bounded check (octet_length(detail) <= 2048)
);
create unique index findings_once on {schema}.findings (
    code, coalesce(destination_id, 0), coalesce(position, 0), detail_digest
) where resolved_at is null;

create trigger immutable before update or delete on {schema}.attempts
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.attempt_finishes
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.attempt_exceptions
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.receipt_batches
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.duplicate_receipts
    for each row execute function {schema}.refuse_change();

create trigger never_emptied before truncate on {schema}.attempts
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.attempt_finishes
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.attempt_exceptions
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.receipt_batches
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.duplicate_receipts
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.quarantine
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.sessions
    execute function {schema}.refuse_change();
