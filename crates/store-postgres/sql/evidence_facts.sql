-- What is registered where evidence points, one row for each piece whose attempt is registered for
-- its destination and holds its position.
--
-- $1 attempts, $2 destinations, $3 positions.
select g.n, e.event_id, (e.envelope::json ->> 'generation')::bigint as generation,
    e.envelope::json -> 'payload' ->> 'digest' as payload_digest, t.digest as destination_digest
from unnest($1::uuid[], $2::integer[], $3::bigint[]) with ordinality
    as g(attempt_id, destination_id, position, n)
join {schema}.attempts a
    on a.attempt_id = g.attempt_id and a.destination_id = g.destination_id
    and g.position between a.first_position and a.last_position
join {schema}.destinations t on t.destination_id = g.destination_id
join {schema}.events e on e.position = g.position
where exists (
    select from unnest(a.run_starts, a.run_lengths) as run(first, length)
    where g.position >= run.first and g.position < run.first + run.length
)
