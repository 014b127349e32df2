-- The record of what was applied. Run at the start of every migrate, under its lock.
create schema if not exists {schema};
create table if not exists {schema}.schema_migrations (
    version integer primary key,
    name text collate "C" not null,
    -- sha256 of the file as shipped, before the schema's name was filled in.
    checksum bytea not null,
    applied_at timestamptz not null,
    program text collate "C" not null
);
