-- What is registered, by whom it was changed, and the guard that keeps evidence as it is.
--
-- Text that is compared or sorted is collated "C": byte for byte, whatever the database's locale.

create function {schema}.refuse_change() returns trigger
language plpgsql as $$
begin
    raise exception '% on %.% is refused', tg_op, tg_table_schema, tg_table_name
        using errcode = 'PR020',
        detail = 'Rows of this table are evidence: once committed they never change.',
        hint = 'Correct a wrong event with another event; purge only by retention.';
end
$$;

create table {schema}.destinations (
    -- Counted by apply, in plan order.
    destination_id integer primary key,
    name text collate "C" not null,
    generation bigint not null,
    digest bytea not null unique,
    -- RFC 8785 JSON of postrider.destination/1; the columns below repeat what SQL needs of it.
    canonical text collate "C" not null,
    kind text collate "C" not null,
    ordering text collate "C" not null,
    lanes integer not null,
    on_unknown text collate "C" not null,
    on_quarantine text collate "C" not null,
    max_payload_bytes bigint,
    registered_at timestamptz not null,
    unique (name, generation),
    constraint digest_is_of_canonical check (digest = sha256(convert_to(canonical, 'UTF8'))),
    constraint generation_counts_from_1 check (generation >= 1),
    constraint ordering_is_known check (ordering in ('none', 'key', 'strict')),
    constraint lanes_in_range check (lanes between 1 and 1024),
    constraint on_unknown_is_known check (on_unknown in ('resend', 'probe', 'hold')),
    constraint on_quarantine_is_known check (on_quarantine in ('hold', 'pass'))
);

-- Destinations to which nothing is sent until a person resumes them. Apart from the
-- destination, which is immutable.
create table {schema}.suspensions (
    destination_id integer primary key references {schema}.destinations,
    code text collate "C" not null,
    detail text collate "C" not null,
    since timestamptz not null
);

create table {schema}.event_types (
    event_type_id integer generated always as identity primary key,
    event_type text collate "C" not null,
    schema_version text collate "C" not null,
    content_type text collate "C" not null,
    json_schema text collate "C",
    schema_digest bytea,
    registered_at timestamptz not null,
    constraint schema_digest_is_of_schema
        check (schema_digest is not distinct from sha256(convert_to(json_schema, 'UTF8')))
);
create index on {schema}.event_types (event_type, schema_version);

-- Which registration of an event type appends use.
create table {schema}.event_types_current (
    event_type text collate "C" not null,
    schema_version text collate "C" not null,
    event_type_id integer not null references {schema}.event_types,
    primary key (event_type, schema_version)
);

create table {schema}.delivery_sets (
    delivery_set_id integer generated always as identity primary key,
    version bigint not null unique,
    digest bytea not null unique,
    canonical text collate "C" not null,
    registered_at timestamptz not null,
    constraint digest_is_of_canonical check (digest = sha256(convert_to(canonical, 'UTF8')))
);

create table {schema}.delivery_set_events (
    delivery_set_id integer not null references {schema}.delivery_sets,
    event_type text collate "C" not null,
    schema_version text collate "C" not null,
    primary key (delivery_set_id, event_type, schema_version)
);

create table {schema}.delivery_set_members (
    delivery_set_id integer not null,
    event_type text collate "C" not null,
    schema_version text collate "C" not null,
    destination_id integer not null references {schema}.destinations,
    consumer text collate "C" not null,
    mandatory boolean not null,
    primary key (delivery_set_id, event_type, schema_version, destination_id),
    foreign key (delivery_set_id, event_type, schema_version)
        references {schema}.delivery_set_events
);

-- The delivery set of the last row is the active one.
create table {schema}.delivery_set_activations (
    activation_id integer generated always as identity primary key,
    delivery_set_id integer not null references {schema}.delivery_sets,
    activated_at timestamptz not null,
    actor text collate "C" not null
);

create table {schema}.audit_log (
    audit_id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text collate "C" not null,
    reason text collate "C" not null,
    -- apply, resume_destination, replay, …
    action text collate "C" not null,
    -- How many things changed.
    changed bigint not null,
    -- Which, for people.
    subject text collate "C" not null
);

create trigger immutable before update or delete on {schema}.destinations
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.event_types
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.delivery_sets
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.delivery_set_events
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.delivery_set_members
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.delivery_set_activations
    for each row execute function {schema}.refuse_change();
create trigger immutable before update or delete on {schema}.audit_log
    for each row execute function {schema}.refuse_change();

create trigger never_emptied before truncate on {schema}.destinations
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.event_types
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.delivery_sets
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.delivery_set_events
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.delivery_set_members
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.delivery_set_activations
    execute function {schema}.refuse_change();
create trigger never_emptied before truncate on {schema}.audit_log
    execute function {schema}.refuse_change();
