-- Sessions whose lease is over, the longest dead first. $1 now, $2 limit.
select session_id from {schema}.sessions
where ended_at is null and expires_at <= coalesce($1::timestamptz, clock_timestamp())
order by expires_at, session_id
limit $2::bigint
