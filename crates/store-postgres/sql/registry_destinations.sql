select t.destination_id, t.canonical, t.digest,
    not exists (
        select from {schema}.destinations o
        where o.name = t.name and o.generation > t.generation
    ) as current,
    s.code, s.detail, s.since
from {schema}.destinations t
left join {schema}.suspensions s using (destination_id)
order by t.destination_id
