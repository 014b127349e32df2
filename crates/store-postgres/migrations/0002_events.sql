-- Events, and the open deliveries that exist by construction: the trigger on events writes them,
-- whoever inserts an event and by whatever path (I2).

-- CACHE 1: a session never keeps numbers back, so within one session positions are append order.
create sequence {schema}.event_position as bigint cache 1;

create table {schema}.events (
    event_id uuid not null,
    position bigint not null default nextval('{schema}.event_position'),
    delivery_set_id integer not null,
    appended_at timestamptz not null,
    event_type text collate "C" not null,
    schema_version text collate "C" not null,
    tenant text collate "C" not null,
    aggregate_type text collate "C" not null,
    aggregate_id text collate "C" not null,
    partition_key text collate "C" not null,
    -- RFC 8785 JSON of postrider.envelope/1: exactly the bytes under the digest.
    envelope text collate "C" not null,
    -- jcs-sha256-v1
    envelope_digest bytea not null,
    payload bytea not null,
    -- [["name","value"], …] sorted by name; null when there are none.
    headers text collate "C",
    traceparent text collate "C",
    tracestate text collate "C",
    primary key (event_id),
    constraint position_is_positive check (position > 0),
    constraint digest_is_of_envelope
        check (envelope_digest = sha256(convert_to(envelope, 'UTF8'))),
    constraint appended_at_is_writable
        check (appended_at >= '0001-01-01 00:00:00+00' and appended_at < '10000-01-01 00:00:00+00')
) partition by range (event_id);

create index events_position on {schema}.events (position);

-- Takes ids that are not UUIDv7, and months for which no partition was made in time. Rows of up
-- to 4 KB stay in line: an envelope with a payload of 1 KiB would else go through compression at
-- each append and each fetch.
create table {schema}.events_default partition of {schema}.events default
    with (toast_tuple_target = 4080);

-- Open deliveries only: a delivery that is acknowledged has no row here, and its receipt is its
-- state. As small as the backlog.
create table {schema}.deliveries (
    position bigint not null,
    key_hash bigint not null,
    -- Counts only for rows that waited; all others are due at once, whatever the clock does.
    available_at timestamptz not null,
    -- When the first attempt that did not end well was registered.
    first_attempt_at timestamptz,
    event_id uuid not null,
    destination_id integer not null,
    payload_bytes integer not null,
    -- Charged since append or replay.
    attempts integer not null default 0,
    lane smallint not null,
    -- 0 pending, 1 unknown, 2 quarantined
    state smallint not null default 0,
    -- It failed before (charged or not), was replayed, or is the next one of a key that was held:
    -- the key hold looks at these rows alone.
    waited boolean not null default false,
    primary key (destination_id, position),
    constraint state_is_known check (state between 0 and 2),
    constraint attempts_not_negative check (attempts >= 0),
    constraint exception_has_waited check (waited or (state = 0 and attempts = 0)),
    constraint available_at_is_writable
        check (available_at >= '0001-01-01 00:00:00+00' and available_at < '10000-01-01 00:00:00+00')
) with (
    -- Every acknowledged delivery leaves a dead row, so vacuum early.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- The key hold of fetch.
create index deliveries_exceptions on {schema}.deliveries (destination_id, key_hash, position)
    where waited;
-- When the next retry is due.
create index deliveries_due on {schema}.deliveries (destination_id, available_at)
    where waited and state = 0;
-- Lists and counts of unknown and quarantined deliveries.
create index deliveries_stuck on {schema}.deliveries (destination_id, state, position)
    where state <> 0;
-- No index over all keys: it would cost every append, and only questions about one stuck key would
-- gain. They read a bounded stretch of the primary key instead.

create function {schema}.key_hash(partition_key text) returns bigint
language sql stable parallel safe
return (('x' || encode(substring(sha256(convert_to(partition_key, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint)
    & 9223372036854775807;

create function {schema}.refuse_too_large(destination text, length bigint, limit_bytes bigint)
returns integer
language plpgsql as $$
begin
    raise exception 'payload of % bytes is over the % bytes that destination "%" takes',
        length, limit_bytes, destination
        using errcode = 'PR003',
        detail = 'The event was not appended.',
        hint = 'Send a reference instead of the content, or raise max_payload_bytes of the destination.',
        -- For programs: the facts of the message.
        constraint = json_build_object('destination', destination, 'length', length, 'limit', limit_bytes)::text;
end
$$;

-- One statement for all events that a statement inserted: an append costs one, a batch costs one.
create function {schema}.prescribe_deliveries() returns trigger
language plpgsql as $$
begin
    insert into {schema}.deliveries (destination_id, position, event_id, key_hash, lane, payload_bytes, available_at)
    select d.destination_id, e.position, e.event_id, e.key_hash, e.key_hash % d.lanes,
        case when e.payload_bytes > d.max_payload_bytes
            then {schema}.refuse_too_large(d.name, e.payload_bytes, d.max_payload_bytes)
            else e.payload_bytes
        end,
        e.appended_at
    from (
        select position, event_id, delivery_set_id, event_type, schema_version, appended_at,
            {schema}.key_hash(partition_key) as key_hash, octet_length(payload) as payload_bytes
        from added
        offset 0
    ) e
    join {schema}.delivery_set_members m using (delivery_set_id, event_type, schema_version)
    join {schema}.destinations d using (destination_id);
    return null;
end
$$;

-- ALWAYS: also where triggers are switched off for replication. A statement trigger fires for the
-- table that the statement names, so every partition has its own.
create trigger prescribe_deliveries after insert on {schema}.events
    referencing new table as added
    for each statement execute function {schema}.prescribe_deliveries();
alter table {schema}.events enable always trigger prescribe_deliveries;
create trigger prescribe_deliveries after insert on {schema}.events_default
    referencing new table as added
    for each statement execute function {schema}.prescribe_deliveries();
alter table {schema}.events_default enable always trigger prescribe_deliveries;
create trigger immutable before update or delete on {schema}.events
    for each row execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.events
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.events_default
    execute function {schema}.refuse_change();
create trigger identity_stays before update of destination_id, position, event_id, key_hash, lane, payload_bytes
    on {schema}.deliveries
    for each row execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.deliveries
    execute function {schema}.refuse_change();
