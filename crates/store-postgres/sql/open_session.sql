-- $1 session, $2 owner, $3 version, $4 exclusive, $5 served destinations, $6 lease in
-- microseconds, $7 now. Answers a row if it was opened; none if its id, or an exclusive session,
-- is there already.
with moment as (select coalesce($7::timestamptz, clock_timestamp()) as at)
insert into {schema}.sessions (
    session_id, owner, version, exclusive, serves, opened_at, expires_at
)
select $1::uuid, $2::text, $3::text, $4::boolean, $5::integer[], at,
    least(at + $6::bigint * interval '1 microsecond', '9999-12-31 23:59:59.999999+00')
from moment
on conflict do nothing
returning 1
