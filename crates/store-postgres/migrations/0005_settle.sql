-- What the relay's statements call to make a transaction fail: their COMMIT is sent with them, so
-- a check must be an error, not an answer.

-- The fence (I8): answers the clock if the session is live and keeps it from being ended until
-- the transaction is over. FOR KEY SHARE lets heartbeats pass; ending takes FOR UPDATE.
create function {schema}.fence(session uuid, moment timestamptz) returns timestamptz
language plpgsql volatile as $$
begin
    perform from {schema}.sessions s
    where s.session_id = session and s.ended_at is null
        and s.expires_at > coalesce(moment, clock_timestamp())
    for key share;
    if not found then
        raise exception 'session % has ended', session
            using errcode = 'PR010',
            detail = 'Its lease is over or it was ended: it can start nothing and settle nothing any more.',
            hint = 'Open a new session; hand in acknowledgements as evidence.';
    end if;
    return coalesce(moment, clock_timestamp());
end
$$;

create function {schema}.expect_rows(actual bigint, expected bigint, code text) returns void
language plpgsql immutable as $$
begin
    if actual <> expected then
        raise exception 'expected % rows, found %', expected, actual using errcode = code;
    end if;
end
$$;

-- The positions of packed runs, in order.
create function {schema}.run_positions(run_starts bigint[], run_lengths integer[])
returns setof bigint
language sql immutable strict parallel safe rows 1000
begin atomic
    select run.first + step
    from unnest(run_starts, run_lengths) with ordinality as run(first, length, n),
        generate_series(0, run.length - 1) step
    order by run.n, step;
end;
