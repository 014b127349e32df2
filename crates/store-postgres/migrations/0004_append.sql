-- Append: how a producer, in its own transaction, commits an event with its change.
--
-- Producers hold EXECUTE on append and append_batch and nothing else; everything below those is
-- internal. Locks: an append takes none that another append waits for, except on the same event id.

create type {schema}.new_event as (
    event_type text,
    payload bytea,
    aggregate_type text,
    aggregate_id text,
    schema_version text,
    event_id uuid,
    tenant text,
    aggregate_version bigint,
    content_type text,
    partition_key text,
    actor text,
    request_id text,
    correlation_id text,
    causation_id text,
    operation_id text,
    occurred_at text,
    traceparent text,
    tracestate text,
    headers json
);

-- Milliseconds since 1970 in the first 48 bits, the rest random (RFC 9562). Ids are for identity
-- and for the choice of a partition; order is the position's.
create function {schema}.uuid_v7(at timestamptz) returns uuid
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            placing substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3)
            from 1 for 6),
        52, 1), 53, 1),
    'hex')::uuid;

-- Always UTC and six digits, whatever the session's time zone and date style are.
create function {schema}.time_text(at timestamptz) returns text
language sql stable strict parallel safe
return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- RFC 3339 with a zone; null if it is not, or is outside the years 0001 to 9999 in UTC. Fractions
-- are cut to microseconds. A leap second (:60) is refused. Never the server's own parser, which
-- takes a time without a zone for the session's.
create function {schema}.parse_time(given text) returns timestamptz
language plpgsql immutable strict parallel safe as $$
declare
    part constant text[] := regexp_match(given,
        '^([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])'
        '[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,9}))?'
        '(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$');
    year integer;
    day integer;
    shift interval;
    at timestamptz;
begin
    if part is null then
        return null;
    end if;
    year := part[1];
    day := part[3];
    if day > (case part[2]
        when '02' then
            case when year % 4 = 0 and (year % 100 <> 0 or year % 400 = 0) then 29 else 28 end
        when '04' then 30 when '06' then 30 when '09' then 30 when '11' then 30
        else 31
    end) then
        return null;
    end if;
    shift := make_interval(hours => coalesce(part[9]::integer, 0), mins => coalesce(part[10]::integer, 0));
    if part[8] = '-' then
        shift := -shift;
    end if;
    -- Year 0 is 1 BC, which make_timestamp calls -1; a zone may still move it into year 1.
    at := (make_timestamp(case year when 0 then -1 else year end, part[2]::integer, day,
            part[4]::integer, part[5]::integer, part[6]::double precision)
        + rpad(coalesce(part[7], '0'), 6, '0')::double precision * interval '1 microsecond'
        - shift) at time zone 'UTC';
    if at < '0001-01-01 00:00:00+00' or at >= '10000-01-01 00:00:00+00' then
        return null;
    end if;
    return at;
end
$$;

-- The canonical envelope (RFC 8785). The members are few and fixed, so their sorted order is
-- written down here; to_json escapes text as RFC 8785 does; concat leaves out what is null.
create function {schema}.envelope_text(
    e {schema}.new_event, event_id uuid, occurred_at timestamptz, delivery_set_version bigint,
    delivery_set_digest text, schema_digest text
) returns text
language sql stable parallel safe
return concat(
    '{',
    '"actor":' || to_json((e).actor) || ',',
    '"aggregate":{"id":', to_json((e).aggregate_id), ',"type":', to_json((e).aggregate_type),
    ',"version":' || (e).aggregate_version, '},',
    '"causationId":' || to_json((e).causation_id) || ',',
    '"correlationId":' || to_json((e).correlation_id) || ',',
    '"deliverySet":{"digest":"', delivery_set_digest, '","version":', delivery_set_version, '},',
    '"eventId":"', event_id, '",',
    '"eventType":', to_json((e).event_type), ',',
    '"generation":1,',
    '"occurredAt":"', {schema}.time_text(occurred_at), '",',
    '"operationId":' || to_json((e).operation_id) || ',',
    '"partitionKey":', to_json(coalesce((e).partition_key, (e).aggregate_type || '/' || (e).aggregate_id)), ',',
    '"payload":{"contentType":', to_json(coalesce((e).content_type, 'application/json')),
    ',"digest":"sha256:', encode(sha256((e).payload), 'hex'), '"',
    ',"length":', octet_length((e).payload),
    ',"schemaDigest":"' || schema_digest || '"', '},',
    '"requestId":' || to_json((e).request_id) || ',',
    '"schema":"postrider.envelope/1",',
    '"schemaVersion":', to_json((e).schema_version), ',',
    '"tenant":', to_json(coalesce((e).tenant, 'default')),
    '}'
);

create function {schema}.refuse_field(field text, problem text) returns boolean
language plpgsql as $$
begin
    raise exception '%: %', field, problem
        using errcode = 'PR004', column = field,
        detail = 'The event was not appended.',
        hint = 'Correct the field and append again.';
end
$$;

-- Free headers as stored: pairs sorted by name. Takes {"name": "value"} or [["name", "value"]].
create function {schema}.header_pairs(headers json) returns text
language plpgsql stable as $$
declare
    names text[];
    texts text[];
    bad text;
begin
    if headers is null or json_typeof(headers) = 'null' then
        return null;
    end if;
    begin
        if json_typeof(headers) = 'object' then
            select array_agg(h.key), array_agg(case json_typeof(h.value) when 'string' then h.value #>> '{}' end)
            into names, texts
            from json_each(headers) h;
        elsif json_typeof(headers) = 'array' then
            select
                array_agg(case when json_typeof(h) = 'array' and json_array_length(h) = 2
                    and json_typeof(h -> 0) = 'string' then h ->> 0 end),
                array_agg(case when json_typeof(h) = 'array' and json_array_length(h) = 2
                    and json_typeof(h -> 1) = 'string' then h ->> 1 end)
            into names, texts
            from json_array_elements(headers) h;
        else
            perform {schema}.refuse_field('headers', 'are neither an object of strings nor an array of pairs of strings; give one of these');
        end if;
    exception
        -- An escaped NUL or half a surrogate pair.
        when untranslatable_character or invalid_text_representation then
            perform {schema}.refuse_field('headers', 'hold a character that text cannot have; remove it');
    end;
    if names is null then
        return null;
    end if;
    if array_position(names, null) is not null or array_position(texts, null) is not null then
        perform {schema}.refuse_field('headers', 'are neither an object of strings nor an array of pairs of strings; give one of these');
    end if;
    if cardinality(names) > 32 then
        perform {schema}.refuse_field('headers', format('there are %s, at most 32 are allowed; remove some', cardinality(names)));
    end if;
    if octet_length(array_to_string(names || texts, '')) > 8192 then
        perform {schema}.refuse_field('headers', format('are %s bytes long, at most 8192 are allowed; shorten them', octet_length(array_to_string(names || texts, ''))));
    end if;
    select name into bad from unnest(names) name where name !~ '^[a-z0-9!#$%&''*+.^_`|~-]{1,100}$' limit 1;
    if found then
        perform {schema}.refuse_field(format('headers[%s]', to_json(left(bad, 100))), 'is not a header name of lower-case letters, digits and !#$%&''*+-.^_`|~, at most 100 bytes long');
    end if;
    select name into bad from unnest(names) name
    where name ~ '^(ce-|ce_|cloudevents|nats-|postrider-|webhook-|proxy-|sec-|x-forwarded-)'
        or name in ('accept', 'accept-encoding', 'alt-svc', 'authorization', 'connection',
            'content-disposition', 'content-encoding', 'content-language', 'content-length',
            'content-location', 'content-range', 'content-type', 'cookie', 'date', 'expect',
            'forwarded', 'host', 'idempotency-key', 'keep-alive', 'location', 'server',
            'set-cookie', 'te', 'traceparent', 'tracestate', 'trailer', 'transfer-encoding',
            'upgrade', 'user-agent', 'via', 'www-authenticate')
    limit 1;
    if found then
        perform {schema}.refuse_field(format('headers[%s]', to_json(bad)), 'is a reserved header name; choose another, such as one that starts with x-');
    end if;
    select name into bad from unnest(names, texts) h(name, value) where value ~ '[\u0001-\u001f\u007f-\u009f]' limit 1;
    if found then
        perform {schema}.refuse_field(format('headers[%s]', to_json(bad)), 'holds a control character; remove it (line breaks, NUL and other control characters are not allowed here)');
    end if;
    select name into bad from unnest(names) name group by name having count(*) > 1 limit 1;
    if found then
        perform {schema}.refuse_field(format('headers[%s]', to_json(bad)), 'is given twice; give it once');
    end if;
    return (
        select '[' || string_agg('[' || to_json(name) || ',' || to_json(value) || ']', ',' order by name collate "C") || ']'
        from unnest(names, texts) h(name, value)
    );
end
$$;

-- One event's fields against their rules; raises for the first that breaks its own. Called only
-- when append_rows found that one does.
create function {schema}.check_fields(e {schema}.new_event) returns void
language plpgsql stable as $$
declare
    field record;
    payload_text text;
    deepest bigint;
    content_type constant text := coalesce((e).content_type, 'application/json');
begin
    for field in
        select * from (values
            ('eventType', (e).event_type, 100, true),
            ('schemaVersion', (e).schema_version, 64, true),
            ('aggregate.type', (e).aggregate_type, 255, true),
            ('aggregate.id', (e).aggregate_id, 255, true),
            ('tenant', coalesce((e).tenant, 'default'), 255, true),
            ('payload.contentType', content_type, 255, true),
            ('partitionKey', coalesce((e).partition_key, (e).aggregate_type || '/' || (e).aggregate_id), 511, false),
            ('actor', coalesce((e).actor, '-'), 255, true),
            ('requestId', coalesce((e).request_id, '-'), 255, true),
            ('correlationId', coalesce((e).correlation_id, '-'), 255, true),
            ('causationId', coalesce((e).causation_id, '-'), 255, true),
            ('operationId', coalesce((e).operation_id, '-'), 255, true)
        ) f(name, value, bytes_max, required)
    loop
        if field.value is null then
            perform {schema}.refuse_field(field.name, 'is missing; give it a value');
        elsif field.value = '' and field.required then
            perform {schema}.refuse_field(field.name, 'is empty; give it a value');
        elsif octet_length(field.value) > field.bytes_max then
            perform {schema}.refuse_field(field.name, format('is %s bytes long, at most %s are allowed; shorten it', octet_length(field.value), field.bytes_max));
        elsif field.value ~ '[\u0001-\u001f\u007f-\u009f]' then
            perform {schema}.refuse_field(field.name, 'holds a control character; remove it (line breaks, NUL and other control characters are not allowed here)');
        elsif field.name in ('eventType', 'schemaVersion') and field.value !~ '^[A-Za-z0-9._:/@-]+$' then
            perform {schema}.refuse_field(field.name, 'holds a character outside its alphabet; allowed are the letters A-Z and a-z, digits, and . _ : / @ -');
        elsif field.name = 'payload.contentType' and not {schema}.is_media_type(field.value) then
            perform {schema}.refuse_field(field.name, format('is %s; expected a media type such as application/json', to_json(left(field.value, 100))));
        end if;
    end loop;
    if (e).payload is null then
        perform {schema}.refuse_field('payload', 'is missing; give it a value, possibly empty');
    end if;
    if (e).aggregate_version not between 0 and 9007199254740991 then
        perform {schema}.refuse_field('aggregate.version', format('is %s, but must be between 0 and 9007199254740991', (e).aggregate_version));
    end if;
    if (e).occurred_at is not null and {schema}.parse_time((e).occurred_at) is null then
        perform {schema}.refuse_field('occurredAt', format('is %s; expected an RFC 3339 time with a zone, such as 2026-01-31T09:30:00.5Z', to_json(left((e).occurred_at, 100))));
    end if;
    if lower(rtrim(split_part(content_type, ';', 1), ' ')) = 'application/vnd.postrider.tombstone' then
        if octet_length((e).payload) > 0 then
            perform {schema}.refuse_field('payload', 'must be empty in a tombstone; use another content type for a payload');
        elsif (e).partition_key = '' then
            perform {schema}.refuse_field('partitionKey', 'must not be empty in a tombstone: it says which key is gone');
        end if;
    end if;
    if {schema}.is_json_media(content_type) then
        begin
            payload_text := convert_from((e).payload, 'UTF8');
            perform payload_text::json;
        exception when character_not_in_repertoire or invalid_text_representation
            or untranslatable_character or statement_too_complex
        then
            perform {schema}.refuse_field('payload', format('is not JSON: %s; fix it, or give another content type', left(sqlerrm, 200)));
        end;
        deepest := {schema}.json_depth(payload_text);
        if deepest > 100 then
            perform {schema}.refuse_field('payload', 'is not JSON: arrays and objects are nested more than 100 deep; flatten them; fix it, or give another content type');
        end if;
    end if;
    if not {schema}.is_trace_context((e).traceparent, (e).tracestate) then
        perform {schema}.refuse_field(
            case when (e).traceparent is null or {schema}.is_trace_context((e).traceparent, null) then 'tracestate' else 'traceparent' end,
            'is not W3C trace context; give a traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, and a tracestate only beside one');
    end if;
    perform {schema}.header_pairs((e).headers);
end
$$;

create function {schema}.is_media_type(value text) returns boolean
language sql immutable parallel safe
return value ~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+/[A-Za-z0-9!#$%&''*+.^_`|~-]+ *(;[ -~]*[!-~])?$'
    and value !~ '^[^;]* $';

create function {schema}.is_json_media(value text) returns boolean
language sql immutable parallel safe
return lower(rtrim(split_part(value, ';', 1), ' ')) = 'application/json';

-- Whether JSON text has so many opening brackets, those in strings included, that it may be nested
-- too deep.
create function {schema}.may_be_deep(value text) returns boolean
language sql immutable parallel safe
return length(value) - length(replace(replace(value, '{', ''), '[', '')) > 100;

-- The deepest nesting of valid JSON text.
create function {schema}.json_depth(value text) returns bigint
language sql immutable parallel safe
return (
    select coalesce(max(depth), 0)
    from (
        select sum(case when bracket in ('{', '[') then 1 else -1 end) over (order by n rows unbounded preceding) as depth
        from string_to_table(
            regexp_replace(regexp_replace(value, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'),
            null
        ) with ordinality as t(bracket, n)
    ) d
);

create function {schema}.is_trace_context(traceparent text, tracestate text) returns boolean
language sql immutable parallel safe
return case
    when traceparent is null then tracestate is null
    else octet_length(traceparent) <= 255
        and traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?$'
        and traceparent !~ '^ff-|^00-.{53}|^..-0{32}-|^..-.{32}-0{16}-'
        and (tracestate is null or (
            octet_length(tracestate) between 1 and 512
            and tracestate !~ '\t'
            and cardinality(string_to_array(tracestate, ',')) <= 32
            and (select bool_and(
                    btrim(member, ' ') = ''
                    or btrim(member, ' ') ~ '^([a-z0-9_*/-]{1,241}@[a-z0-9_*/-]{1,14}|[a-z0-9_*/-]{1,255}[a-z0-9_*/-]?)=[ -+\x2d-<>-~]+$'
                    and octet_length(btrim(member, ' ')) - position('=' in btrim(member, ' ')) <= 256)
                from unnest(string_to_array(tracestate, ',')) member)
        ))
end;

-- Whether every rule of check_fields holds: one expression per event, cheap for the usual event.
create function {schema}.fields_hold(e {schema}.new_event) returns boolean
language sql stable parallel safe
return coalesce(
    (e).event_type is not null and (e).schema_version is not null and (e).payload is not null
    and octet_length((e).aggregate_type) between 1 and 255
    and octet_length((e).aggregate_id) between 1 and 255
    and octet_length(coalesce((e).tenant, '-')) between 1 and 255
    and octet_length(coalesce((e).partition_key, '')) <= 511
    and octet_length(coalesce((e).actor, '-')) between 1 and 255
    and octet_length(coalesce((e).request_id, '-')) between 1 and 255
    and octet_length(coalesce((e).correlation_id, '-')) between 1 and 255
    and octet_length(coalesce((e).causation_id, '-')) between 1 and 255
    and octet_length(coalesce((e).operation_id, '-')) between 1 and 255
    and concat((e).aggregate_type, (e).aggregate_id, (e).tenant, (e).partition_key, (e).actor,
        (e).request_id, (e).correlation_id, (e).causation_id, (e).operation_id)
        !~ '[\u0001-\u001f\u007f-\u009f]'
    and coalesce((e).aggregate_version, 0) between 0 and 9007199254740991
    and ((e).occurred_at is null or {schema}.parse_time((e).occurred_at) is not null)
    and ((e).content_type is null or (e).content_type = 'application/json'
        or octet_length((e).content_type) <= 255 and {schema}.is_media_type((e).content_type)
            and (lower((e).content_type) not like 'application/vnd.postrider.tombstone%'
                or octet_length((e).payload) = 0 and coalesce((e).partition_key, '-') <> ''
                or lower(rtrim(split_part((e).content_type, ';', 1), ' ')) <> 'application/vnd.postrider.tombstone'))
    and ((e).traceparent is null and (e).tracestate is null
        or {schema}.is_trace_context((e).traceparent, (e).tracestate)),
    false);

-- Appends in the order given. Internal: producers use append and append_batch.
--
-- `moment` stands in for the clock in tests.
create function {schema}.append_rows(given {schema}.new_event[], moment timestamptz)
returns table (n integer, event_id uuid, "position" bigint, already boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
    event_count constant integer := cardinality(given);
    at constant timestamptz := coalesce(moment, clock_timestamp());
    active record;
    ids uuid[];
    new_ids uuid[];
    new_positions bigint[];
    one record;
    e {schema}.new_event;
begin
    if event_count = 0 then
        return;
    end if;
    -- One block for the whole batch: its savepoint writes nothing and costs one append, not each
    -- event.
    begin
        for i in 1 .. event_count loop
            e := given[i];
            if not {schema}.fields_hold(e) then
                perform {schema}.check_fields(e);
            end if;
            -- JSON is checked, not kept: the bytes are stored as given.
            if (e.content_type is null or {schema}.is_json_media(e.content_type))
                and {schema}.may_be_deep(convert_from(e.payload, 'UTF8')::json::text)
            then
                perform {schema}.check_fields(e);
            end if;
            ids[i] := coalesce(e.event_id, {schema}.uuid_v7(at));
        end loop;
    exception
        when character_not_in_repertoire or invalid_text_representation
            or untranslatable_character or statement_too_complex
        then
            -- Says the same about the same event, in our words.
            perform {schema}.check_fields(e);
            raise;
    end;

    select s.delivery_set_id, s.version, 'jcs-sha256-v1:' || encode(s.digest, 'hex') as digest
    into active
    from {schema}.delivery_set_activations a
    join {schema}.delivery_sets s using (delivery_set_id)
    order by a.activation_id desc
    limit 1;

    if active.delivery_set_id is not null then
        with sealed as (
            -- The order of this subquery is the order in which positions are drawn.
            select g.e, ids[g.n] as event_id,
                {schema}.envelope_text(
                    g.e, ids[g.n], coalesce({schema}.parse_time((g.e).occurred_at), at), active.version,
                    active.digest, 'jcs-sha256-v1:' || encode(t.schema_digest, 'hex')
                ) as envelope
            from (select given[i] as e, i as n from generate_series(1, event_count) i) g
            join {schema}.delivery_set_events applicable
                on applicable.delivery_set_id = active.delivery_set_id
                and applicable.event_type = (g.e).event_type
                and applicable.schema_version = (g.e).schema_version
            left join {schema}.event_types_current c
                on c.event_type = (g.e).event_type and c.schema_version = (g.e).schema_version
            left join {schema}.event_types t using (event_type_id)
            order by g.n
        ),
        inserted as (
            insert into {schema}.events (
                event_id, position, delivery_set_id, appended_at, event_type, schema_version, tenant,
                aggregate_type, aggregate_id, partition_key, envelope, envelope_digest, payload,
                headers, traceparent, tracestate
            )
            select event_id, nextval('{schema}.event_position'), active.delivery_set_id, at,
                (e).event_type, (e).schema_version, coalesce((e).tenant, 'default'),
                (e).aggregate_type, (e).aggregate_id,
                coalesce((e).partition_key, (e).aggregate_type || '/' || (e).aggregate_id),
                envelope, sha256(convert_to(envelope, 'UTF8')), (e).payload,
                {schema}.header_pairs((e).headers), (e).traceparent, (e).tracestate
            from sealed
            on conflict (event_id) do nothing
            returning event_id, position
        )
        select array_agg(i.event_id order by i.position), array_agg(i.position order by i.position)
        into new_ids, new_positions
        from inserted i;
    end if;

    -- A hint for sleeping workers. It is short and fixed: a notification is at most 7,999 bytes,
    -- and must never be the reason why a business transaction fails. Nobody sleeps on a busy
    -- system, which then takes no notify lock at commit.
    if new_ids is not null and exists (select from {schema}.sleepers where until > at) then
        perform pg_notify('{schema}_doorbell', '');
    end if;

    if cardinality(new_ids) = event_count then
        return query select i, new_ids[i], new_positions[i], false from generate_series(1, event_count) i;
        return;
    end if;

    -- Something was there already, or is not registered. An id that is there is looked at before
    -- the event type: a retry stays a retry when the delivery set has changed since.
    for one in
        select i as n, ids[i] as event_id, stored.position, stored.envelope, stored.envelope_digest,
            stored.event_id is not null as present, first.at is not distinct from i as first
        from generate_series(1, event_count) i
        left join {schema}.events stored on stored.event_id = ids[i]
        left join lateral (select min(j) as at from generate_series(1, event_count) j where ids[j] = ids[i]) first on true
        order by i
    loop
        e := given[one.n];
        if not one.present then
            if active.delivery_set_id is null then
                raise exception 'no delivery set is active'
                    using errcode = 'PR005',
                    detail = 'Nothing says which destinations an event must reach, so none can be appended.',
                    hint = 'Register one with `postrider apply`.';
            end if;
            perform {schema}.check_fields(e);
            raise exception 'event type "%" version "%" is not in the active delivery set', e.event_type, e.schema_version
                using errcode = 'PR001',
                detail = 'Nothing says which destinations it must reach, so it was not appended.',
                hint = 'Register it with `postrider apply`.',
                constraint = json_build_object('eventType', e.event_type, 'schemaVersion', e.schema_version)::text;
        end if;
        if one.event_id = any (new_ids) and one.first then
            return query select one.n, one.event_id, one.position, false;
        else
            perform {schema}.refuse_other_content(e, one.event_id, one.envelope, one.envelope_digest);
            return query select one.n, one.event_id, one.position, true;
        end if;
    end loop;
end
$$;

-- Whether appending an event again is a retry. What the application leaves to the database (time,
-- delivery set, schema digest) is taken from the stored envelope.
create function {schema}.refuse_other_content(
    e {schema}.new_event, event_id uuid, stored text, stored_digest bytea
) returns void
language plpgsql stable as $$
declare
    kept constant json := stored::json;
    offered constant bytea := sha256(convert_to({schema}.envelope_text(
        e, event_id,
        coalesce({schema}.parse_time(e.occurred_at), {schema}.parse_time(kept ->> 'occurredAt')),
        (kept -> 'deliverySet' ->> 'version')::bigint, kept -> 'deliverySet' ->> 'digest',
        kept -> 'payload' ->> 'schemaDigest'
    ), 'UTF8'));
begin
    if offered <> stored_digest then
        raise exception 'event % exists with digest jcs-sha256-v1:%, this one has jcs-sha256-v1:%',
            event_id, encode(stored_digest, 'hex'), encode(offered, 'hex')
            using errcode = 'PR002',
            detail = 'An event id is never used twice for different content; the event was not appended.',
            hint = 'Give the new event an id of its own, or leave the id out.',
            constraint = json_build_object('eventId', event_id,
                'existing', 'jcs-sha256-v1:' || encode(stored_digest, 'hex'),
                'offered', 'jcs-sha256-v1:' || encode(offered, 'hex'))::text;
    end if;
end
$$;

-- Appends one event. The payload is stored byte for byte; as text it is its UTF-8 bytes.
--
--     select * from {schema}.append('order.placed', '{"total":10}', 'order', '42');
--
-- Leave event_id out, or give one to make a repeated call harmless: the same event again answers
-- already = true. occurred_at is RFC 3339 text with a zone; headers are {"name": "value"}.
create function {schema}.append(
    event_type text, payload bytea, aggregate_type text, aggregate_id text,
    schema_version text default '1', inout event_id uuid default null, tenant text default 'default',
    aggregate_version bigint default null, content_type text default 'application/json',
    partition_key text default null, actor text default null, request_id text default null,
    correlation_id text default null, causation_id text default null,
    operation_id text default null, occurred_at text default null, traceparent text default null,
    tracestate text default null, headers json default null,
    out "position" bigint, out already boolean
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    select a.event_id, a.position, a.already
    into append.event_id, append.position, append.already
    from {schema}.append_rows(array[row(
        append.event_type, append.payload, append.aggregate_type, append.aggregate_id,
        append.schema_version, append.event_id, append.tenant, append.aggregate_version,
        append.content_type, append.partition_key, append.actor, append.request_id,
        append.correlation_id, append.causation_id, append.operation_id, append.occurred_at,
        append.traceparent, append.tracestate, append.headers
    )::{schema}.new_event], null) a;
end
$$;

create function {schema}.append(
    event_type text, payload text, aggregate_type text, aggregate_id text,
    schema_version text default '1', inout event_id uuid default null, tenant text default 'default',
    aggregate_version bigint default null, content_type text default 'application/json',
    partition_key text default null, actor text default null, request_id text default null,
    correlation_id text default null, causation_id text default null,
    operation_id text default null, occurred_at text default null, traceparent text default null,
    tracestate text default null, headers json default null,
    out "position" bigint, out already boolean
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    select a.event_id, a.position, a.already
    into append.event_id, append.position, append.already
    from {schema}.append_rows(array[row(
        append.event_type, convert_to(append.payload, 'UTF8'), append.aggregate_type,
        append.aggregate_id, append.schema_version, append.event_id, append.tenant,
        append.aggregate_version, append.content_type, append.partition_key, append.actor,
        append.request_id, append.correlation_id, append.causation_id, append.operation_id,
        append.occurred_at, append.traceparent, append.tracestate, append.headers
    )::{schema}.new_event], null) a;
end
$$;

-- Appends many events in one round trip, all or nothing, in order. Arrays in parallel, one element
-- per event; an array left out is all defaults, and so is a null element.
create function {schema}.append_batch(
    event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[],
    schema_versions text[] default null, event_ids uuid[] default null, tenants text[] default null,
    aggregate_versions bigint[] default null, content_types text[] default null,
    partition_keys text[] default null, actors text[] default null, request_ids text[] default null,
    correlation_ids text[] default null, causation_ids text[] default null,
    operation_ids text[] default null, occurred_ats text[] default null,
    traceparents text[] default null, tracestates text[] default null, headers json[] default null
)
returns table (event_id uuid, "position" bigint, already boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select a.event_id, a.position, a.already
    from {schema}.append_rows({schema}.new_events(event_types, payloads, aggregate_types,
        aggregate_ids, schema_versions, event_ids, tenants, aggregate_versions, content_types,
        partition_keys, actors, request_ids, correlation_ids, causation_ids, operation_ids,
        occurred_ats, traceparents, tracestates, headers), null) a
    order by a.n;
end
$$;

create function {schema}.new_events(
    event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[],
    schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[],
    content_types text[], partition_keys text[], actors text[], request_ids text[],
    correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[],
    traceparents text[], tracestates text[], headers json[]
) returns {schema}.new_event[]
language plpgsql stable as $$
begin
    if (select bool_or(length <> cardinality(event_types)) from unnest(array[
        cardinality(payloads), cardinality(aggregate_types), cardinality(aggregate_ids),
        cardinality(schema_versions), cardinality(event_ids), cardinality(tenants),
        cardinality(aggregate_versions), cardinality(content_types), cardinality(partition_keys),
        cardinality(actors), cardinality(request_ids), cardinality(correlation_ids),
        cardinality(causation_ids), cardinality(operation_ids), cardinality(occurred_ats),
        cardinality(traceparents), cardinality(tracestates), cardinality(headers)]) length)
    then
        perform {schema}.refuse_field('events', 'the arrays have different lengths; give one element per event in each, or leave an array out');
    end if;
    return array(
        select row(g.event_type, g.payload, g.aggregate_type, g.aggregate_id,
            coalesce(g.schema_version, '1'), g.event_id, g.tenant, g.aggregate_version,
            g.content_type, g.partition_key, g.actor, g.request_id, g.correlation_id,
            g.causation_id, g.operation_id, g.occurred_at, g.traceparent, g.tracestate,
            g.headers)::{schema}.new_event
        from unnest(event_types, payloads, aggregate_types, aggregate_ids, schema_versions,
            event_ids, tenants, aggregate_versions, content_types, partition_keys, actors,
            request_ids, correlation_ids, causation_ids, operation_ids, occurred_ats,
            traceparents, tracestates, headers
        ) with ordinality as g(event_type, payload, aggregate_type, aggregate_id, schema_version,
            event_id, tenant, aggregate_version, content_type, partition_key, actor, request_id,
            correlation_id, causation_id, operation_id, occurred_at, traceparent, tracestate,
            headers, n)
        order by g.n
    );
end
$$;

-- The same from one JSON array of objects, whose members are named as append's arguments. The
-- payload's bytes are those of the string `payload`, of the base64 text `payload_base64`, or of
-- the JSON value `payload_json` exactly as it is written in the document. The document is `json`,
-- not `jsonb`, which would reorder keys and rewrite numbers. A value with an escaped NUL or half a
-- surrogate pair cannot be taken out of a document: give its text as `payload`.
create function {schema}.append_batch(events json)
returns table (event_id uuid, "position" bigint, already boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    given {schema}.new_event[] := '{}';
    item json;
    unknown text;
    number bigint := 0;
begin
    if json_typeof(events) is distinct from 'array' then
        perform {schema}.refuse_field('events', 'is not a JSON array of objects; give one');
    end if;
    begin
        for item in select value from json_array_elements(events) value loop
            if json_typeof(item) <> 'object' then
                perform {schema}.refuse_field(format('events[%s]', number), 'is not an object; give one');
            end if;
            select string_agg(key, ', ') into unknown from (
                select key from json_object_keys(item) key
                where key not in ('event_type', 'payload', 'payload_base64', 'payload_json',
                    'aggregate_type', 'aggregate_id', 'schema_version', 'event_id', 'tenant',
                    'aggregate_version', 'content_type', 'partition_key', 'actor', 'request_id',
                    'correlation_id', 'causation_id', 'operation_id', 'occurred_at', 'traceparent',
                    'tracestate', 'headers')
                union all
                select key || ' (twice)' from json_object_keys(item) key group by key having count(*) > 1
            ) k;
            if unknown is not null then
                perform {schema}.refuse_field(format('events[%s]', number), format('has members that are not known here: %s; remove them', left(unknown, 200)));
            end if;
            if json_typeof(item -> 'payload') <> 'string' then
                perform {schema}.refuse_field(format('events[%s].payload', number), 'is not a string; give a JSON value as payload_json');
            end if;
            if num_nonnulls(item ->> 'payload', item ->> 'payload_base64', item -> 'payload_json') <> 1 then
                perform {schema}.refuse_field(format('events[%s].payload', number), 'must be given once, as payload, payload_base64 or payload_json');
            end if;
            given := given || row(
                item ->> 'event_type',
                coalesce(convert_to(item ->> 'payload', 'UTF8'), decode(item ->> 'payload_base64', 'base64'),
                    convert_to((item -> 'payload_json')::text, 'UTF8')),
                item ->> 'aggregate_type', item ->> 'aggregate_id', coalesce(item ->> 'schema_version', '1'),
                (item ->> 'event_id')::uuid, item ->> 'tenant', (item ->> 'aggregate_version')::bigint,
                item ->> 'content_type', item ->> 'partition_key', item ->> 'actor',
                item ->> 'request_id', item ->> 'correlation_id', item ->> 'causation_id',
                item ->> 'operation_id', item ->> 'occurred_at', item ->> 'traceparent',
                item ->> 'tracestate', item -> 'headers')::{schema}.new_event;
            number := number + 1;
        end loop;
    exception
        when untranslatable_character or invalid_text_representation
            or invalid_parameter_value or numeric_value_out_of_range
        then
            perform {schema}.refuse_field(format('events[%s]', number), format('holds a value that cannot be read: %s', left(sqlerrm, 200)));
    end;
    return query
    select a.event_id, a.position, a.already from {schema}.append_rows(given, null) a order by a.n;
end
$$;
