-- Who holds the oldest snapshot or transaction of this database, so that rows which were deleted
-- since cannot be cleared away; and how many such rows the outbox has. One row, for people.
--
-- Autovacuum's own snapshots hold nothing back. A role without pg_read_all_stats sees no snapshot
-- of another role: all_seen says so.
with holders as (
    select 'session' as kind, coalesce(nullif(application_name, ''), backend_type) as name, pid,
        coalesce(state, 'active') as state,
        greatest(age(backend_xmin), age(backend_xid)) as transactions,
        extract(epoch from clock_timestamp() - xact_start) as seconds
    from pg_stat_activity
    where pid <> pg_backend_pid()
        and (datname = current_database() or backend_type = 'walsender')
        and backend_type <> 'autovacuum worker'
    union all
    select 'prepared transaction', gid, null, owner::text, age(transaction),
        extract(epoch from clock_timestamp() - prepared)
    from pg_prepared_xacts
    where database = current_database()
    union all
    select 'replication slot', slot_name::text, active_pid,
        case when active then 'active' else 'inactive' end, age(xmin), null
    from pg_replication_slots
),
oldest as (
    select * from holders
    where transactions is not null
    order by transactions desc, seconds desc nulls last
    limit 1
),
tables as (
    select sum(n_dead_tup) as dead from pg_stat_user_tables where schemaname = '{schema}'
)
select o.kind, o.name, o.pid, o.state, o.transactions, (o.seconds * 1000000)::bigint as held_us,
    coalesce(t.dead, 0)::bigint as dead_rows,
    pg_has_role(current_user, 'pg_read_all_stats', 'usage') as all_seen
from tables t
left join oldest o on true
