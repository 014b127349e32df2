-- Finishes the open attempts of an ended session as unknown, and gives each of their deliveries
-- that is still pending what its destination does about that. $1 session, $2 now.
--
-- A member with a receipt of that very attempt was acknowledged; all others are exceptions.
with moment as (select coalesce($2::timestamptz, clock_timestamp()) as at),
unfinished as (
    delete from {schema}.open_attempts where session_id = $1::uuid returning attempt_id
),
member as (
    select a.attempt_id, a.destination_id, a.registered_at, p.position,
        exists (
            select from {schema}.receipt_batches b,
                unnest(b.run_starts, b.run_lengths) as run(first, length)
            where b.attempt_id = a.attempt_id
                and int8range(b.first_position, b.last_position, '[]') @> p.position
                and p.position >= run.first and p.position < run.first + run.length
        ) or exists (
            select from {schema}.duplicate_receipts r
            where r.attempt_id = a.attempt_id and r.position = p.position
        ) as acknowledged
    from unfinished
    join {schema}.attempts a using (attempt_id)
    cross join lateral {schema}.run_positions(a.run_starts, a.run_lengths) as p(position)
),
finished as (
    insert into {schema}.attempt_finishes (attempt_id, finished_at, reason, acknowledged, exceptions)
    select attempt_id, (select at from moment), 'lease_expired_unknown',
        count(*) filter (where acknowledged), count(*) filter (where not acknowledged)
    from member
    group by attempt_id
    returning 1
),
kept as (
    insert into {schema}.attempt_exceptions (attempt_id, position, outcome, code, detail)
    select m.attempt_id, m.position, case t.on_unknown when 'resend' then 'retry' else 'unknown' end,
        'lease_expired_unknown', ''
    from member m
    join {schema}.destinations t using (destination_id)
    where not m.acknowledged
),
changed as (
    update {schema}.deliveries d
    set waited = true,
        first_attempt_at = coalesce(d.first_attempt_at, m.registered_at),
        state = case when d.state = 0 and m.on_unknown <> 'resend' then 1 else d.state end,
        available_at = case
            when d.state = 0 and m.on_unknown = 'resend' then (select at from moment)
            else d.available_at
        end
    from (
        select destination_id, position, min(member.registered_at) as registered_at,
            min(t.on_unknown) as on_unknown
        from member join {schema}.destinations t using (destination_id)
        group by destination_id, position
    ) m
    where d.destination_id = m.destination_id and d.position = m.position
    returning 1
)
select (select count(*) from finished) as attempts, (select count(*) from changed) as deliveries
