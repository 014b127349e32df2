-- $1 event id. One row for each delivery that the frozen delivery set prescribes.
select m.destination_id, ({schema}.key_hash(e.partition_key) % t.lanes)::smallint as lane, d.state,
    d.attempts, d.available_at, q.code, q.detail, q.since
from {schema}.events e
join {schema}.delivery_set_members m using (delivery_set_id, event_type, schema_version)
join {schema}.destinations t on t.destination_id = m.destination_id
left join {schema}.deliveries d
    on d.destination_id = m.destination_id and d.position = e.position
left join {schema}.quarantine q
    on q.destination_id = m.destination_id and q.position = e.position and q.resolved_at is null
where e.event_id = $1::uuid
order by m.destination_id
