-- $1 limit.
select s.session_id, s.owner, s.version, s.exclusive, s.opened_at, s.expires_at, s.ended_at,
    s.ended_reason,
    (select count(*) from {schema}.lanes l where l.session_id = s.session_id) as lanes
from {schema}.sessions s
order by s.opened_at desc, s.session_id
limit $1::bigint
