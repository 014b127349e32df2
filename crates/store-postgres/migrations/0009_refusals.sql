-- A worker that must not send to a destination says so beside its breakers, and is not counted
-- among those who share its lanes.

alter table {schema}.breakers add column refused boolean not null default false;
