-- $1 now. The exclusive session that did not end, and whether its lease is over.
select session_id, owner, expires_at <= coalesce($1::timestamptz, clock_timestamp()) as expired
from {schema}.sessions
where exclusive and ended_at is null
