-- $1 session. Whether it ended.
select ended_at is not null as ended from {schema}.sessions where session_id = $1::uuid
