-- Views and functions for people: packed rows spread out, and each delivery's state in every
-- vocabulary in use. The relay decides nothing by them.

-- One row per event and destination that has a primary receipt. Reads whole batches: for one event
-- use receipt(event_id), which goes by the range index.
create view {schema}.receipts as
select
    e.event_id, p.position, b.destination_id, d.name as destination, b.attempt_id, b.accepted_at,
    b.shared::json as shared, b.run_numbers[run.n] + p.step as number, b.late
from {schema}.receipt_batches b
join {schema}.destinations d using (destination_id)
cross join lateral unnest(b.run_starts, b.run_lengths) with ordinality as run(first, length, n)
cross join lateral (
    select run.first + step as position, step from generate_series(0, run.length - 1) step
) p
join {schema}.events e on e.position = p.position;

-- The primary receipts of one event.
create function {schema}.receipt(event_id uuid)
returns table (
    destination_id integer, destination text, attempt_id uuid, accepted_at timestamptz, shared json,
    number bigint, late boolean
)
language sql stable
begin atomic
    select b.destination_id, d.name, b.attempt_id, b.accepted_at, b.shared::json,
        b.run_numbers[run.n] + (e.position - run.first), b.late
    from {schema}.events e
    join {schema}.receipt_batches b
        on int8range(b.first_position, b.last_position, '[]') @> e.position
    join {schema}.destinations d using (destination_id)
    cross join lateral unnest(b.run_starts, b.run_lengths) with ordinality as run(first, length, n)
    where e.event_id = receipt.event_id
        and e.position >= run.first and e.position < run.first + run.length
    order by b.destination_id;
end;

-- One row per event and destination that its delivery set prescribes.
--
-- state        pending, sending, unknown, quarantined, acknowledged
-- dispatch     PENDING, SENDING, DISPATCH_UNKNOWN, RETRY_CLAIMED (waits for a retry or a person), PUBLISHED
-- lease        pending, leased, acknowledged, quarantined
-- outbox       pending, publishing, failed, dead_letter, published
create view {schema}.deliveries_status as
select s.event_id, s.position, s.destination_id, s.destination, s.attempts, s.available_at, s.state,
    case s.state
        when 'acknowledged' then 'PUBLISHED' when 'sending' then 'SENDING'
        when 'unknown' then 'DISPATCH_UNKNOWN' when 'quarantined' then 'RETRY_CLAIMED'
        else case when s.waited then 'RETRY_CLAIMED' else 'PENDING' end
    end as dispatch,
    case s.state
        when 'sending' then 'leased' when 'unknown' then 'pending' else s.state
    end as lease,
    case s.state
        when 'acknowledged' then 'published' when 'sending' then 'publishing'
        when 'quarantined' then 'dead_letter'
        else case when s.waited then 'failed' else 'pending' end
    end as outbox
from (
    select e.event_id, e.position, m.destination_id, t.name as destination, o.attempts, o.waited,
        o.available_at,
        case
            when o.position is null then 'acknowledged'
            when o.state = 1 then 'unknown'
            when o.state = 2 then 'quarantined'
            when exists (
                select from {schema}.open_attempts open
                join {schema}.attempts a using (attempt_id)
                cross join lateral unnest(a.run_starts, a.run_lengths) as run(first, length)
                where open.destination_id = m.destination_id
                    and e.position >= run.first and e.position < run.first + run.length
            ) then 'sending'
            else 'pending'
        end as state
    from {schema}.events e
    join {schema}.delivery_set_members m using (delivery_set_id, event_type, schema_version)
    join {schema}.destinations t on t.destination_id = m.destination_id
    left join {schema}.deliveries o
        on o.destination_id = m.destination_id and o.position = e.position
) s;

-- Why an event is where it is, one row per destination, in one sentence. `next_at`: when
-- something happens by itself; null when a person or a new worker is needed, or all is done.
create function {schema}.why(event_id uuid)
returns table (destination text, state text, because text, next_at timestamptz)
language sql stable
begin atomic
    select null::text, 'absent',
        'no such event is committed: its transaction rolled back or is still open, or it was appended to another database',
        null::timestamptz
    where not exists (select from {schema}.events e where e.event_id = why.event_id)
    union all
    select s.destination, s.state,
        case
            when s.state = 'acknowledged' then coalesce(
                (select format('receipt %s of attempt %s at %s', r.shared, r.attempt_id, {schema}.time_text(r.accepted_at))
                from {schema}.receipt(why.event_id) r where r.destination_id = s.destination_id),
                'no open delivery and no receipt: report this')
            when s.state = 'quarantined' then (
                select format('quarantined since %s: %s %s; it waits for a replay', {schema}.time_text(q.since), q.code, q.detail)
                from {schema}.quarantine q
                where q.destination_id = s.destination_id and q.position = s.position and q.resolved_at is null)
            when s.state = 'unknown' then coalesce(
                (select format('attempt %s may have been accepted: %s %s', x.attempt_id, x.code, x.detail)
                from {schema}.attempt_exceptions x join {schema}.attempts a using (attempt_id)
                where x.position = s.position and a.destination_id = s.destination_id
                    and int8range(a.first_position, a.last_position, '[]') @> s.position
                order by a.registered_at desc limit 1),
                'an attempt may have been accepted')
            when s.state = 'sending' then (
                select format('in attempt %s of %s (session %s), whose lease ends at %s', a.attempt_id, w.owner, w.session_id, {schema}.time_text(w.expires_at))
                from {schema}.open_attempts o join {schema}.attempts a using (attempt_id)
                join {schema}.sessions w on w.session_id = a.session_id
                where o.destination_id = s.destination_id
                    and int8range(a.first_position, a.last_position, '[]') @> s.position
                order by a.registered_at desc limit 1)
            when stop.since is not null then format('the destination is suspended since %s: %s %s', {schema}.time_text(stop.since), stop.code, stop.detail)
            when held.position is not null then format('waits behind the delivery of its key at position %s (%s)', held.position,
                (array['waits for its retry', 'unknown', 'quarantined'])[held.state + 1])
            when breaker.since is not null then format('the breaker of the destination is open since %s: %s %s', {schema}.time_text(breaker.since), breaker.code, breaker.detail)
            when d.waited and d.available_at > clock_timestamp() then format('next try at %s, after %s charged attempts', {schema}.time_text(d.available_at), d.attempts)
            when l.session_id is null then 'no worker holds its lane'
            else format('due; its lane is held by %s', (select w.owner from {schema}.sessions w where w.session_id = l.session_id))
        end,
        case
            when s.state = 'pending' and stop.since is null and held.position is null then
                coalesce(breaker.next_probe_at, case when d.waited then d.available_at end, clock_timestamp())
            when s.state = 'pending' and held.state = 0 then held.available_at
            when s.state = 'sending' then (
                select max(w.expires_at) from {schema}.open_attempts o
                join {schema}.sessions w on w.session_id = o.session_id
                where o.destination_id = s.destination_id)
        end
    from {schema}.deliveries_status s
    left join {schema}.deliveries d on d.destination_id = s.destination_id and d.position = s.position
    left join {schema}.lanes l on l.destination_id = s.destination_id and l.lane = d.lane
    left join {schema}.suspensions stop on stop.destination_id = s.destination_id
    left join lateral (
        select b.since, b.code, b.detail, b.next_probe_at from {schema}.breakers b
        where b.destination_id = s.destination_id order by b.since limit 1
    ) breaker on true
    left join lateral (
        select h.position, h.state, h.available_at
        from {schema}.deliveries h join {schema}.destinations t using (destination_id)
        where h.destination_id = s.destination_id and h.key_hash = d.key_hash
            and h.position < s.position and h.waited and t.ordering <> 'none'
            and (h.state = 1 or (h.state = 2 and t.on_quarantine = 'hold')
                or (h.state = 0 and h.available_at > clock_timestamp()))
        order by h.position limit 1
    ) held on true
    where s.event_id = why.event_id;
end;
