select l.destination_id, l.lane, l.session_id, s.owner, l.since
from {schema}.lanes l
left join {schema}.sessions s using (session_id)
order by l.destination_id, l.lane
