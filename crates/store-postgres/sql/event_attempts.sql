-- $1 position, $2 how many of each destination. The newest, oldest first.
select * from (
    select a.destination_id, a.attempt_id, a.session_id, s.owner, a.registered_at, f.finished_at,
        x.code, x.detail, least(s.expires_at, s.ended_at) as lease_until,
        row_number() over (
            partition by a.destination_id order by a.registered_at desc, a.attempt_id desc
        ) as newest
    from {schema}.attempts a
    join {schema}.sessions s using (session_id)
    left join {schema}.attempt_finishes f using (attempt_id)
    left join {schema}.attempt_exceptions x
        on x.attempt_id = a.attempt_id and x.position = $1::bigint
    where int8range(a.first_position, a.last_position, '[]') @> $1::bigint
        and exists (
            select from unnest(a.run_starts, a.run_lengths) as run(first, length)
            where $1::bigint >= run.first and $1::bigint < run.first + run.length
        )
) n
where newest <= $2::bigint
order by destination_id, registered_at, attempt_id
