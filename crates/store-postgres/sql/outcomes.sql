-- Writes what members that were not acknowledged become. Only a pending row changes its state: a
-- receipt or a conflict that came first stands.
--
-- $1 destination, $2 attempts, $3 positions, $4 states (0 pending again, 1 unknown, 2
-- quarantined), $5 charged attempts (null: as they are), $6 delays in microseconds, $7 codes,
-- $8 details, $9 now.
with moment as (select coalesce($9::timestamptz, clock_timestamp()) as at),
given as (
    select * from unnest($2::uuid[], $3::bigint[], $4::smallint[], $5::integer[], $6::bigint[],
        $7::text[], $8::text[]) as g(attempt_id, position, state, attempts, delay_us, code, detail)
),
kept as (
    insert into {schema}.attempt_exceptions (attempt_id, position, outcome, code, detail)
    select attempt_id, position, (array['retry', 'unknown', 'quarantined'])[state + 1], code, detail
    from given
),
changed as (
    update {schema}.deliveries d
    set waited = true,
        first_attempt_at = coalesce(d.first_attempt_at, a.registered_at),
        state = case when d.state = 0 then g.state else d.state end,
        attempts = case when d.state = 0 then coalesce(g.attempts, d.attempts) else d.attempts end,
        available_at = case
            when d.state = 0 and g.state = 0 then least(
                (select at from moment) + g.delay_us * interval '1 microsecond',
                '9999-12-31 23:59:59.999999+00')
            else d.available_at
        end
    from given g join {schema}.attempts a using (attempt_id)
    where d.destination_id = $1::integer and d.position = g.position
    returning d.position, d.event_id, g.state, g.code, g.detail
)
insert into {schema}.quarantine (destination_id, position, event_id, code, detail, since)
select $1::integer, position, event_id, code, detail, (select at from moment)
from changed where state = 2
on conflict do nothing
