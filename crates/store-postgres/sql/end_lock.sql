-- Ends a session: waits for its transactions that are under way, and from here its fence fails.
--
-- $1 session, $2 only if its lease is over, $3 now. No row: it ended already, or is live.
-- Lock: its row, FOR UPDATE.
select owner from {schema}.sessions
where session_id = $1::uuid and ended_at is null
    and (not $2::boolean or expires_at <= coalesce($3::timestamptz, clock_timestamp()))
for update
