-- What the migrations make, for reading. A test writes and compares it; nothing runs it.
CREATE SCHEMA postrider;
CREATE TYPE postrider.new_event AS (
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
CREATE FUNCTION postrider.append(event_type text, payload bytea, aggregate_type text, aggregate_id text, schema_version text DEFAULT '1'::text, INOUT event_id uuid DEFAULT NULL::uuid, tenant text DEFAULT 'default'::text, aggregate_version bigint DEFAULT NULL::bigint, content_type text DEFAULT 'application/json'::text, partition_key text DEFAULT NULL::text, actor text DEFAULT NULL::text, request_id text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, causation_id text DEFAULT NULL::text, operation_id text DEFAULT NULL::text, occurred_at text DEFAULT NULL::text, traceparent text DEFAULT NULL::text, tracestate text DEFAULT NULL::text, headers json DEFAULT NULL::json, OUT "position" bigint, OUT already boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    select a.event_id, a.position, a.already
    into append.event_id, append.position, append.already
    from postrider.append_rows(array[row(
        append.event_type, append.payload, append.aggregate_type, append.aggregate_id,
        append.schema_version, append.event_id, append.tenant, append.aggregate_version,
        append.content_type, append.partition_key, append.actor, append.request_id,
        append.correlation_id, append.causation_id, append.operation_id, append.occurred_at,
        append.traceparent, append.tracestate, append.headers
    )::postrider.new_event], null) a;
end
$$;
CREATE FUNCTION postrider.append(event_type text, payload text, aggregate_type text, aggregate_id text, schema_version text DEFAULT '1'::text, INOUT event_id uuid DEFAULT NULL::uuid, tenant text DEFAULT 'default'::text, aggregate_version bigint DEFAULT NULL::bigint, content_type text DEFAULT 'application/json'::text, partition_key text DEFAULT NULL::text, actor text DEFAULT NULL::text, request_id text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, causation_id text DEFAULT NULL::text, operation_id text DEFAULT NULL::text, occurred_at text DEFAULT NULL::text, traceparent text DEFAULT NULL::text, tracestate text DEFAULT NULL::text, headers json DEFAULT NULL::json, OUT "position" bigint, OUT already boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    select a.event_id, a.position, a.already
    into append.event_id, append.position, append.already
    from postrider.append_rows(array[row(
        append.event_type, convert_to(append.payload, 'UTF8'), append.aggregate_type,
        append.aggregate_id, append.schema_version, append.event_id, append.tenant,
        append.aggregate_version, append.content_type, append.partition_key, append.actor,
        append.request_id, append.correlation_id, append.causation_id, append.operation_id,
        append.occurred_at, append.traceparent, append.tracestate, append.headers
    )::postrider.new_event], null) a;
end
$$;
CREATE FUNCTION postrider.append_batch(events json) RETURNS TABLE(event_id uuid, "position" bigint, already boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    given postrider.new_event[] := '{}';
    item json;
    unknown text;
    number bigint := 0;
begin
    if json_typeof(events) is distinct from 'array' then
        perform postrider.refuse_field('events', 'is not a JSON array of objects; give one');
    end if;
    begin
        for item in select value from json_array_elements(events) value loop
            if json_typeof(item) <> 'object' then
                perform postrider.refuse_field(format('events[%s]', number), 'is not an object; give one');
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
                perform postrider.refuse_field(format('events[%s]', number), format('has members that are not known here: %s; remove them', left(unknown, 200)));
            end if;
            if json_typeof(item -> 'payload') <> 'string' then
                perform postrider.refuse_field(format('events[%s].payload', number), 'is not a string; give a JSON value as payload_json');
            end if;
            if num_nonnulls(item ->> 'payload', item ->> 'payload_base64', item -> 'payload_json') <> 1 then
                perform postrider.refuse_field(format('events[%s].payload', number), 'must be given once, as payload, payload_base64 or payload_json');
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
                item ->> 'tracestate', item -> 'headers')::postrider.new_event;
            number := number + 1;
        end loop;
    exception
        when untranslatable_character or invalid_text_representation
            or invalid_parameter_value or numeric_value_out_of_range
        then
            perform postrider.refuse_field(format('events[%s]', number), format('holds a value that cannot be read: %s', left(sqlerrm, 200)));
    end;
    return query
    select a.event_id, a.position, a.already from postrider.append_rows(given, null) a order by a.n;
end
$$;
CREATE FUNCTION postrider.append_batch(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[] DEFAULT NULL::text[], event_ids uuid[] DEFAULT NULL::uuid[], tenants text[] DEFAULT NULL::text[], aggregate_versions bigint[] DEFAULT NULL::bigint[], content_types text[] DEFAULT NULL::text[], partition_keys text[] DEFAULT NULL::text[], actors text[] DEFAULT NULL::text[], request_ids text[] DEFAULT NULL::text[], correlation_ids text[] DEFAULT NULL::text[], causation_ids text[] DEFAULT NULL::text[], operation_ids text[] DEFAULT NULL::text[], occurred_ats text[] DEFAULT NULL::text[], traceparents text[] DEFAULT NULL::text[], tracestates text[] DEFAULT NULL::text[], headers json[] DEFAULT NULL::json[]) RETURNS TABLE(event_id uuid, "position" bigint, already boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
    return query
    select a.event_id, a.position, a.already
    from postrider.append_rows(postrider.new_events(event_types, payloads, aggregate_types,
        aggregate_ids, schema_versions, event_ids, tenants, aggregate_versions, content_types,
        partition_keys, actors, request_ids, correlation_ids, causation_ids, operation_ids,
        occurred_ats, traceparents, tracestates, headers), null) a
    order by a.n;
end
$$;
CREATE FUNCTION postrider.append_checked(checked_with integer, schema_digests text[], given_ids uuid[], event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) RETURNS TABLE(event_id uuid, "position" bigint, already boolean, refusal text, facts json)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    given constant postrider.new_event[] := postrider.new_events(event_types, payloads,
        aggregate_types, aggregate_ids, schema_versions, event_ids, tenants, aggregate_versions,
        content_types, partition_keys, actors, request_ids, correlation_ids, causation_ids,
        operation_ids, occurred_ats, traceparents, tracestates, headers);
    active constant integer := (
        select a.delivery_set_id
        from postrider.delivery_set_activations a
        order by a.activation_id desc
        limit 1
    );
    one record;
    found_facts text;
begin
    -- Before all else: a retry stays a retry, whatever the registry says by now. Another
    -- transaction that appends the same id at this moment is met by append_rows, which raises.
    if cardinality(given_ids) > 0 then
        begin
            for one in
                select g.e, stored.event_id, stored.envelope, stored.envelope_digest
                from (select given[i] as e, i as n from generate_subscripts(given, 1) i) g
                join postrider.events stored on stored.event_id = (g.e).event_id
                where stored.event_id = any (given_ids)
                order by g.n
            loop
                perform postrider.refuse_other_content(one.e, one.event_id, one.envelope, one.envelope_digest);
            end loop;
        exception when sqlstate 'PR002' then
            get stacked diagnostics found_facts = constraint_name;
            return query select null::uuid, null::bigint, null::boolean, 'conflict', found_facts::json;
            return;
        end;
    end if;
    if active is null then
        return query select null::uuid, null::bigint, null::boolean, 'no_delivery_set', null::json;
        return;
    end if;
    if checked_with <> active or exists (
        select
        from (select distinct t.event_type, t.schema_version, t.schema_digest
            from unnest(event_types, schema_versions, schema_digests)
                t(event_type, schema_version, schema_digest)) used
        join postrider.event_types_current c
            on c.event_type = used.event_type and c.schema_version = used.schema_version
        join postrider.event_types t using (event_type_id)
        where used.schema_digest is distinct from 'jcs-sha256-v1:' || encode(t.schema_digest, 'hex')
    ) then
        return query select null::uuid, null::bigint, null::boolean, 'stale', null::json;
        return;
    end if;
    if checked_with is null then
        select t.event_type, t.schema_version into one
        from unnest(event_types, schema_versions, event_ids) with ordinality
            t(event_type, schema_version, event_id, n)
        where not exists (
                select from postrider.delivery_set_events served
                where served.delivery_set_id = active
                    and served.event_type = t.event_type
                    and served.schema_version = t.schema_version
            )
            and not exists (select from postrider.events stored where stored.event_id = t.event_id)
        order by t.n
        limit 1;
        if found then
            return query select null::uuid, null::bigint, null::boolean, 'unknown_event_type',
                json_build_object('eventType', one.event_type, 'schemaVersion', one.schema_version);
            return;
        end if;
    end if;
    return query
    select a.event_id, a.position, a.already, null::text, null::json
    from postrider.append_rows(given, null) a
    order by a.n;
end
$$;
CREATE FUNCTION postrider.append_rows(given postrider.new_event[], moment timestamp with time zone) RETURNS TABLE(n integer, event_id uuid, "position" bigint, already boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    event_count constant integer := cardinality(given);
    at constant timestamptz := coalesce(moment, clock_timestamp());
    active record;
    ids uuid[];
    new_ids uuid[];
    new_positions bigint[];
    one record;
    e postrider.new_event;
begin
    if event_count = 0 then
        return;
    end if;
    -- One block for the whole batch: its savepoint writes nothing and costs one append, not each
    -- event.
    begin
        for i in 1 .. event_count loop
            e := given[i];
            if not postrider.fields_hold(e) then
                perform postrider.check_fields(e);
            end if;
            -- JSON is checked, not kept: the bytes are stored as given.
            if (e.content_type is null or postrider.is_json_media(e.content_type))
                and postrider.may_be_deep(convert_from(e.payload, 'UTF8')::json::text)
            then
                perform postrider.check_fields(e);
            end if;
            ids[i] := coalesce(e.event_id, postrider.uuid_v7(at));
        end loop;
    exception
        when character_not_in_repertoire or invalid_text_representation
            or untranslatable_character or statement_too_complex
        then
            -- Says the same about the same event, in our words.
            perform postrider.check_fields(e);
            raise;
    end;
    select s.delivery_set_id, s.version, 'jcs-sha256-v1:' || encode(s.digest, 'hex') as digest
    into active
    from postrider.delivery_set_activations a
    join postrider.delivery_sets s using (delivery_set_id)
    order by a.activation_id desc
    limit 1;
    if active.delivery_set_id is not null then
        with sealed as (
            -- The order of this subquery is the order in which positions are drawn.
            select g.e, ids[g.n] as event_id,
                postrider.envelope_text(
                    g.e, ids[g.n], coalesce(postrider.parse_time((g.e).occurred_at), at), active.version,
                    active.digest, 'jcs-sha256-v1:' || encode(t.schema_digest, 'hex')
                ) as envelope
            from (select given[i] as e, i as n from generate_series(1, event_count) i) g
            join postrider.delivery_set_events applicable
                on applicable.delivery_set_id = active.delivery_set_id
                and applicable.event_type = (g.e).event_type
                and applicable.schema_version = (g.e).schema_version
            left join postrider.event_types_current c
                on c.event_type = (g.e).event_type and c.schema_version = (g.e).schema_version
            left join postrider.event_types t using (event_type_id)
            order by g.n
        ),
        inserted as (
            insert into postrider.events (
                event_id, position, delivery_set_id, appended_at, event_type, schema_version, tenant,
                aggregate_type, aggregate_id, partition_key, envelope, envelope_digest, payload,
                headers, traceparent, tracestate
            )
            select event_id, nextval('postrider.event_position'), active.delivery_set_id, at,
                (e).event_type, (e).schema_version, coalesce((e).tenant, 'default'),
                (e).aggregate_type, (e).aggregate_id,
                coalesce((e).partition_key, (e).aggregate_type || '/' || (e).aggregate_id),
                envelope, sha256(convert_to(envelope, 'UTF8')), (e).payload,
                postrider.header_pairs((e).headers), (e).traceparent, (e).tracestate
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
    if new_ids is not null and exists (select from postrider.sleepers where until > at) then
        perform pg_notify('postrider_doorbell', '');
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
        left join postrider.events stored on stored.event_id = ids[i]
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
            perform postrider.check_fields(e);
            raise exception 'event type "%" version "%" is not in the active delivery set', e.event_type, e.schema_version
                using errcode = 'PR001',
                detail = 'Nothing says which destinations it must reach, so it was not appended.',
                hint = 'Register it with `postrider apply`.',
                constraint = json_build_object('eventType', e.event_type, 'schemaVersion', e.schema_version)::text;
        end if;
        if one.event_id = any (new_ids) and one.first then
            return query select one.n, one.event_id, one.position, false;
        else
            perform postrider.refuse_other_content(e, one.event_id, one.envelope, one.envelope_digest);
            return query select one.n, one.event_id, one.position, true;
        end if;
    end loop;
end
$$;
CREATE FUNCTION postrider.check_fields(e postrider.new_event) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if (e).event_id = '00000000-0000-0000-0000-000000000000' then
        perform postrider.refuse_field('eventId', 'is the nil UUID; leave it out, or give the event an id of its own');
    end if;
    perform postrider.check_other_fields(e);
end
$$;
CREATE FUNCTION postrider.check_other_fields(e postrider.new_event) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $_$
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
            perform postrider.refuse_field(field.name, 'is missing; give it a value');
        elsif field.value = '' and field.required then
            perform postrider.refuse_field(field.name, 'is empty; give it a value');
        elsif octet_length(field.value) > field.bytes_max then
            perform postrider.refuse_field(field.name, format('is %s bytes long, at most %s are allowed; shorten it', octet_length(field.value), field.bytes_max));
        elsif field.value ~ '[\u0001-\u001f\u007f-\u009f]' then
            perform postrider.refuse_field(field.name, 'holds a control character; remove it (line breaks, NUL and other control characters are not allowed here)');
        elsif field.name in ('eventType', 'schemaVersion') and field.value !~ '^[A-Za-z0-9._:/@-]+$' then
            perform postrider.refuse_field(field.name, 'holds a character outside its alphabet; allowed are the letters A-Z and a-z, digits, and . _ : / @ -');
        elsif field.name = 'payload.contentType' and not postrider.is_media_type(field.value) then
            perform postrider.refuse_field(field.name, format('is %s; expected a media type such as application/json', to_json(left(field.value, 100))));
        end if;
    end loop;
    if (e).payload is null then
        perform postrider.refuse_field('payload', 'is missing; give it a value, possibly empty');
    end if;
    if (e).aggregate_version not between 0 and 9007199254740991 then
        perform postrider.refuse_field('aggregate.version', format('is %s, but must be between 0 and 9007199254740991', (e).aggregate_version));
    end if;
    if (e).occurred_at is not null and postrider.parse_time((e).occurred_at) is null then
        perform postrider.refuse_field('occurredAt', format('is %s; expected an RFC 3339 time with a zone, such as 2026-01-31T09:30:00.5Z', to_json(left((e).occurred_at, 100))));
    end if;
    if lower(rtrim(split_part(content_type, ';', 1), ' ')) = 'application/vnd.postrider.tombstone' then
        if octet_length((e).payload) > 0 then
            perform postrider.refuse_field('payload', 'must be empty in a tombstone; use another content type for a payload');
        elsif (e).partition_key = '' then
            perform postrider.refuse_field('partitionKey', 'must not be empty in a tombstone: it says which key is gone');
        end if;
    end if;
    if postrider.is_json_media(content_type) then
        begin
            payload_text := convert_from((e).payload, 'UTF8');
            perform payload_text::json;
        exception when character_not_in_repertoire or invalid_text_representation
            or untranslatable_character or statement_too_complex
        then
            perform postrider.refuse_field('payload', format('is not JSON: %s; fix it, or give another content type', left(sqlerrm, 200)));
        end;
        deepest := postrider.json_depth(payload_text);
        if deepest > 100 then
            perform postrider.refuse_field('payload', 'is not JSON: arrays and objects are nested more than 100 deep; flatten them; fix it, or give another content type');
        end if;
    end if;
    if not postrider.is_trace_context((e).traceparent, (e).tracestate) then
        perform postrider.refuse_field(
            case when (e).traceparent is null or postrider.is_trace_context((e).traceparent, null) then 'tracestate' else 'traceparent' end,
            'is not W3C trace context; give a traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, and a tracestate only beside one');
    end if;
    perform postrider.header_pairs((e).headers);
end
$_$;
CREATE FUNCTION postrider.time_text(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    RETURN to_char((at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text);
CREATE FUNCTION postrider.envelope_text(e postrider.new_event, event_id uuid, occurred_at timestamp with time zone, delivery_set_version bigint, delivery_set_digest text, schema_digest text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN concat('{', (('"actor":'::text || to_json((e).actor)) || ','::text), '"aggregate":{"id":', to_json((e).aggregate_id), ',"type":', to_json((e).aggregate_type), (',"version":'::text || (e).aggregate_version), '},', (('"causationId":'::text || to_json((e).causation_id)) || ','::text), (('"correlationId":'::text || to_json((e).correlation_id)) || ','::text), '"deliverySet":{"digest":"', delivery_set_digest, '","version":', delivery_set_version, '},', '"eventId":"', event_id, '",', '"eventType":', to_json((e).event_type), ',', '"generation":1,', '"occurredAt":"', postrider.time_text(occurred_at), '",', (('"operationId":'::text || to_json((e).operation_id)) || ','::text), '"partitionKey":', to_json(COALESCE((e).partition_key, (((e).aggregate_type || '/'::text) || (e).aggregate_id))), ',', '"payload":{"contentType":', to_json(COALESCE((e).content_type, 'application/json'::text)), ',"digest":"sha256:', encode(sha256((e).payload), 'hex'::text), '"', ',"length":', octet_length((e).payload), ((',"schemaDigest":"'::text || schema_digest) || '"'::text), '},', (('"requestId":'::text || to_json((e).request_id)) || ','::text), '"schema":"postrider.envelope/1",', '"schemaVersion":', to_json((e).schema_version), ',', '"tenant":', to_json(COALESCE((e).tenant, 'default'::text)), '}');
CREATE TABLE postrider.delivery_set_activations (
    activation_id integer NOT NULL,
    delivery_set_id integer NOT NULL,
    activated_at timestamp with time zone NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE postrider.delivery_set_events (
    delivery_set_id integer NOT NULL,
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE postrider.delivery_set_members (
    delivery_set_id integer NOT NULL,
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C",
    destination_id integer NOT NULL,
    consumer text NOT NULL COLLATE pg_catalog."C",
    mandatory boolean NOT NULL
);
CREATE TABLE postrider.destinations (
    destination_id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    generation bigint NOT NULL,
    digest bytea NOT NULL,
    canonical text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    ordering text NOT NULL COLLATE pg_catalog."C",
    lanes integer NOT NULL,
    on_unknown text NOT NULL COLLATE pg_catalog."C",
    on_quarantine text NOT NULL COLLATE pg_catalog."C",
    max_payload_bytes bigint,
    registered_at timestamp with time zone NOT NULL,
    CONSTRAINT digest_is_of_canonical CHECK ((digest = sha256(convert_to(canonical, 'UTF8'::name)))),
    CONSTRAINT generation_counts_from_1 CHECK ((generation >= 1)),
    CONSTRAINT lanes_in_range CHECK (((lanes >= 1) AND (lanes <= 1024))),
    CONSTRAINT on_quarantine_is_known CHECK ((on_quarantine = ANY (ARRAY['hold'::text, 'pass'::text]))),
    CONSTRAINT on_unknown_is_known CHECK ((on_unknown = ANY (ARRAY['resend'::text, 'probe'::text, 'hold'::text]))),
    CONSTRAINT ordering_is_known CHECK ((ordering = ANY (ARRAY['none'::text, 'key'::text, 'strict'::text])))
);
CREATE TABLE postrider.event_types (
    event_type_id integer NOT NULL,
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C",
    content_type text NOT NULL COLLATE pg_catalog."C",
    json_schema text COLLATE pg_catalog."C",
    schema_digest bytea,
    registered_at timestamp with time zone NOT NULL,
    CONSTRAINT schema_digest_is_of_schema CHECK ((NOT (schema_digest IS DISTINCT FROM sha256(convert_to(json_schema, 'UTF8'::name)))))
);
CREATE TABLE postrider.event_types_current (
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C",
    event_type_id integer NOT NULL
);
CREATE FUNCTION postrider.event_registry() RETURNS json
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT json_build_object('deliverySetId', active.delivery_set_id, 'eventTypes', COALESCE((SELECT json_agg(json_build_object('eventType', served.event_type, 'schemaVersion', served.schema_version, 'contentType', COALESCE(t.content_type, 'application/json'::text), 'jsonSchema', t.json_schema, 'limit', (SELECT json_build_object('destination', d.name, 'payloadBytes', d.max_payload_bytes) AS json_build_object FROM (postrider.delivery_set_members m JOIN postrider.destinations d USING (destination_id)) WHERE ((m.delivery_set_id = served.delivery_set_id) AND (m.event_type = served.event_type) AND (m.schema_version = served.schema_version) AND (d.max_payload_bytes IS NOT NULL)) ORDER BY d.max_payload_bytes, d.name LIMIT 1)) ORDER BY served.event_type, served.schema_version) AS json_agg FROM ((postrider.delivery_set_events served LEFT JOIN postrider.event_types_current c ON (((c.event_type = served.event_type) AND (c.schema_version = served.schema_version)))) LEFT JOIN postrider.event_types t USING (event_type_id)) WHERE (served.delivery_set_id = active.delivery_set_id)), '[]'::json)) AS json_build_object FROM ((VALUES (1)) always(one) LEFT JOIN LATERAL (SELECT a.delivery_set_id FROM postrider.delivery_set_activations a ORDER BY a.activation_id DESC LIMIT 1) active ON (true)));
CREATE FUNCTION postrider.expect_rows(actual bigint, expected bigint, code text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if actual <> expected then
        raise exception 'expected % rows, found %', expected, actual using errcode = code;
    end if;
end
$$;
CREATE FUNCTION postrider.fence(session uuid, moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
begin
    perform from postrider.sessions s
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
CREATE FUNCTION postrider.is_media_type(value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((value ~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+/[A-Za-z0-9!#$%&''*+.^_`|~-]+ *(;[ -~]*[!-~])?$'::text) AND (value !~ '^[^;]* $'::text));
CREATE FUNCTION postrider.is_trace_context(traceparent text, tracestate text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (traceparent IS NULL) THEN (tracestate IS NULL) ELSE ((octet_length(traceparent) <= 255) AND (traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?$'::text) AND (traceparent !~ '^ff-|^00-.{53}|^..-0{32}-|^..-.{32}-0{16}-'::text) AND ((tracestate IS NULL) OR (((octet_length(tracestate) >= 1) AND (octet_length(tracestate) <= 512)) AND (tracestate !~ '\t'::text) AND (cardinality(string_to_array(tracestate, ','::text)) <= 32) AND (SELECT bool_and(((btrim(member.member, ' '::text) = ''::text) OR ((btrim(member.member, ' '::text) ~ '^([a-z0-9_*/-]{1,241}@[a-z0-9_*/-]{1,14}|[a-z0-9_*/-]{1,255}[a-z0-9_*/-]?)=[ -+\x2d-<>-~]+$'::text) AND ((octet_length(btrim(member.member, ' '::text)) - POSITION(('='::text) IN (btrim(member.member, ' '::text)))) <= 256)))) AS bool_and FROM unnest(string_to_array(is_trace_context.tracestate, ','::text)) member(member))))) END;
CREATE FUNCTION postrider.parse_time(given text) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
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
$_$;
CREATE FUNCTION postrider.other_fields_hold(e postrider.new_event) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN COALESCE((((e).event_type IS NOT NULL) AND ((e).schema_version IS NOT NULL) AND ((e).payload IS NOT NULL) AND ((octet_length((e).aggregate_type) >= 1) AND (octet_length((e).aggregate_type) <= 255)) AND ((octet_length((e).aggregate_id) >= 1) AND (octet_length((e).aggregate_id) <= 255)) AND ((octet_length(COALESCE((e).tenant, '-'::text)) >= 1) AND (octet_length(COALESCE((e).tenant, '-'::text)) <= 255)) AND (octet_length(COALESCE((e).partition_key, ''::text)) <= 511) AND ((octet_length(COALESCE((e).actor, '-'::text)) >= 1) AND (octet_length(COALESCE((e).actor, '-'::text)) <= 255)) AND ((octet_length(COALESCE((e).request_id, '-'::text)) >= 1) AND (octet_length(COALESCE((e).request_id, '-'::text)) <= 255)) AND ((octet_length(COALESCE((e).correlation_id, '-'::text)) >= 1) AND (octet_length(COALESCE((e).correlation_id, '-'::text)) <= 255)) AND ((octet_length(COALESCE((e).causation_id, '-'::text)) >= 1) AND (octet_length(COALESCE((e).causation_id, '-'::text)) <= 255)) AND ((octet_length(COALESCE((e).operation_id, '-'::text)) >= 1) AND (octet_length(COALESCE((e).operation_id, '-'::text)) <= 255)) AND (concat((e).aggregate_type, (e).aggregate_id, (e).tenant, (e).partition_key, (e).actor, (e).request_id, (e).correlation_id, (e).causation_id, (e).operation_id) !~ '[\u0001-\u001f\u007f-\u009f]'::text) AND ((COALESCE((e).aggregate_version, (0)::bigint) >= 0) AND (COALESCE((e).aggregate_version, (0)::bigint) <= '9007199254740991'::bigint)) AND (((e).occurred_at IS NULL) OR (postrider.parse_time((e).occurred_at) IS NOT NULL)) AND (((e).content_type IS NULL) OR ((e).content_type = 'application/json'::text) OR ((octet_length((e).content_type) <= 255) AND postrider.is_media_type((e).content_type) AND ((lower((e).content_type) !~~ 'application/vnd.postrider.tombstone%'::text) OR ((octet_length((e).payload) = 0) AND (COALESCE((e).partition_key, '-'::text) <> ''::text)) OR (lower(rtrim(split_part((e).content_type, ';'::text, 1), ' '::text)) <> 'application/vnd.postrider.tombstone'::text)))) AND ((((e).traceparent IS NULL) AND ((e).tracestate IS NULL)) OR postrider.is_trace_context((e).traceparent, (e).tracestate))), false);
CREATE FUNCTION postrider.fields_hold(e postrider.new_event) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((e).event_id IS DISTINCT FROM '00000000-0000-0000-0000-000000000000'::uuid) AND postrider.other_fields_hold(e));
CREATE FUNCTION postrider.header_pairs(headers json) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
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
            perform postrider.refuse_field('headers', 'are neither an object of strings nor an array of pairs of strings; give one of these');
        end if;
    exception
        -- An escaped NUL or half a surrogate pair.
        when untranslatable_character or invalid_text_representation then
            perform postrider.refuse_field('headers', 'hold a character that text cannot have; remove it');
    end;
    if names is null then
        return null;
    end if;
    if array_position(names, null) is not null or array_position(texts, null) is not null then
        perform postrider.refuse_field('headers', 'are neither an object of strings nor an array of pairs of strings; give one of these');
    end if;
    if cardinality(names) > 32 then
        perform postrider.refuse_field('headers', format('there are %s, at most 32 are allowed; remove some', cardinality(names)));
    end if;
    if octet_length(array_to_string(names || texts, '')) > 8192 then
        perform postrider.refuse_field('headers', format('are %s bytes long, at most 8192 are allowed; shorten them', octet_length(array_to_string(names || texts, ''))));
    end if;
    select name into bad from unnest(names) name where name !~ '^[a-z0-9!#$%&''*+.^_`|~-]{1,100}$' limit 1;
    if found then
        perform postrider.refuse_field(format('headers[%s]', to_json(left(bad, 100))), 'is not a header name of lower-case letters, digits and !#$%&''*+-.^_`|~, at most 100 bytes long');
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
        perform postrider.refuse_field(format('headers[%s]', to_json(bad)), 'is a reserved header name; choose another, such as one that starts with x-');
    end if;
    select name into bad from unnest(names, texts) h(name, value) where value ~ '[\u0001-\u001f\u007f-\u009f]' limit 1;
    if found then
        perform postrider.refuse_field(format('headers[%s]', to_json(bad)), 'holds a control character; remove it (line breaks, NUL and other control characters are not allowed here)');
    end if;
    select name into bad from unnest(names) name group by name having count(*) > 1 limit 1;
    if found then
        perform postrider.refuse_field(format('headers[%s]', to_json(bad)), 'is given twice; give it once');
    end if;
    return (
        select '[' || string_agg('[' || to_json(name) || ',' || to_json(value) || ']', ',' order by name collate "C") || ']'
        from unnest(names, texts) h(name, value)
    );
end
$_$;
CREATE FUNCTION postrider.is_json_media(value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (lower(rtrim(split_part(value, ';'::text, 1), ' '::text)) = 'application/json'::text);
CREATE FUNCTION postrider.json_depth(value text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(max(d.depth), (0)::bigint) AS "coalesce" FROM (SELECT sum(CASE WHEN (t.bracket = ANY (ARRAY['{'::text, '['::text])) THEN 1 ELSE '-1'::integer END) OVER (ORDER BY t.n ROWS UNBOUNDED PRECEDING) AS depth FROM string_to_table(regexp_replace(regexp_replace(json_depth.value, '"(?:[^"\\]|\\.)*"'::text, ''::text, 'g'::text), '[^][{}]'::text, ''::text, 'g'::text), NULL::text) WITH ORDINALITY t(bracket, n)) d);
CREATE FUNCTION postrider.key_hash(partition_key text) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((('x'::text || encode(SUBSTRING(sha256(convert_to(partition_key, 'UTF8'::name)) FROM 1 FOR 8), 'hex'::text)))::bit(64))::bigint & '9223372036854775807'::bigint);
CREATE FUNCTION postrider.may_be_deep(value text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((length(value) - length(replace(replace(value, '{'::text, ''::text), '['::text, ''::text))) > 100);
CREATE FUNCTION postrider.new_events(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) RETURNS postrider.new_event[]
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if (select bool_or(length <> cardinality(event_types)) from unnest(array[
        cardinality(payloads), cardinality(aggregate_types), cardinality(aggregate_ids),
        cardinality(schema_versions), cardinality(event_ids), cardinality(tenants),
        cardinality(aggregate_versions), cardinality(content_types), cardinality(partition_keys),
        cardinality(actors), cardinality(request_ids), cardinality(correlation_ids),
        cardinality(causation_ids), cardinality(operation_ids), cardinality(occurred_ats),
        cardinality(traceparents), cardinality(tracestates), cardinality(headers)]) length)
    then
        perform postrider.refuse_field('events', 'the arrays have different lengths; give one element per event in each, or leave an array out');
    end if;
    return array(
        select row(g.event_type, g.payload, g.aggregate_type, g.aggregate_id,
            coalesce(g.schema_version, '1'), g.event_id, g.tenant, g.aggregate_version,
            g.content_type, g.partition_key, g.actor, g.request_id, g.correlation_id,
            g.causation_id, g.operation_id, g.occurred_at, g.traceparent, g.tracestate,
            g.headers)::postrider.new_event
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
CREATE FUNCTION postrider.number_before_position() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform pg_current_xact_id();
    return null;
end
$$;
CREATE FUNCTION postrider.prescribe_deliveries() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    insert into postrider.deliveries (destination_id, position, event_id, key_hash, lane, payload_bytes, available_at)
    select d.destination_id, e.position, e.event_id, e.key_hash, e.key_hash % d.lanes,
        case when e.payload_bytes > d.max_payload_bytes
            then postrider.refuse_too_large(d.name, e.payload_bytes, d.max_payload_bytes)
            else e.payload_bytes
        end,
        e.appended_at
    from (
        select position, event_id, delivery_set_id, event_type, schema_version, appended_at,
            postrider.key_hash(partition_key) as key_hash, octet_length(payload) as payload_bytes
        from added
        offset 0
    ) e
    join postrider.delivery_set_members m using (delivery_set_id, event_type, schema_version)
    join postrider.destinations d using (destination_id);
    return null;
end
$$;
CREATE SEQUENCE postrider.event_position
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE postrider.events (
    event_id uuid NOT NULL,
    "position" bigint DEFAULT nextval('postrider.event_position'::regclass) NOT NULL,
    delivery_set_id integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    partition_key text NOT NULL COLLATE pg_catalog."C",
    envelope text NOT NULL COLLATE pg_catalog."C",
    envelope_digest bytea NOT NULL,
    payload bytea NOT NULL,
    headers text COLLATE pg_catalog."C",
    traceparent text COLLATE pg_catalog."C",
    tracestate text COLLATE pg_catalog."C",
    CONSTRAINT appended_at_is_writable CHECK (((appended_at >= '0001-01-01 05:41:16+05:41:16'::timestamp with time zone) AND (appended_at < '10000-01-01 05:45:00+05:45'::timestamp with time zone))),
    CONSTRAINT digest_is_of_envelope CHECK ((envelope_digest = sha256(convert_to(envelope, 'UTF8'::name)))),
    CONSTRAINT position_is_positive CHECK (("position" > 0))
)
PARTITION BY RANGE (event_id);
CREATE TABLE postrider.receipt_batches (
    receipt_batch_id bigint NOT NULL,
    attempt_id uuid NOT NULL,
    destination_id integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    shared text NOT NULL COLLATE pg_catalog."C",
    run_starts bigint[] NOT NULL,
    run_lengths integer[] NOT NULL,
    run_numbers bigint[],
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    late boolean NOT NULL,
    CONSTRAINT range_holds CHECK (((first_position = run_starts[1]) AND (last_position >= first_position))),
    CONSTRAINT runs_pair CHECK (((cardinality(run_starts) > 0) AND (cardinality(run_starts) = cardinality(run_lengths)) AND (cardinality(run_starts) = COALESCE(cardinality(run_numbers), cardinality(run_starts)))))
);
CREATE FUNCTION postrider.receipt(event_id uuid) RETURNS TABLE(destination_id integer, destination text, attempt_id uuid, accepted_at timestamp with time zone, shared json, number bigint, late boolean)
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT b.destination_id,
     d.name,
     b.attempt_id,
     b.accepted_at,
     (b.shared)::json AS shared,
     (b.run_numbers[run.n] + (e."position" - run.first)),
     b.late
    FROM (((postrider.events e
      JOIN postrider.receipt_batches b ON ((int8range(b.first_position, b.last_position, '[]'::text) @> e."position")))
      JOIN postrider.destinations d USING (destination_id))
      CROSS JOIN LATERAL UNNEST(b.run_starts, b.run_lengths) WITH ORDINALITY run(first, length, n))
   WHERE ((e.event_id = receipt.event_id) AND (e."position" >= run.first) AND (e."position" < (run.first + run.length)))
   ORDER BY b.destination_id;
END;
CREATE FUNCTION postrider.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception '% on %.% is refused', tg_op, tg_table_schema, tg_table_name
        using errcode = 'PR020',
        detail = 'Rows of this table are evidence: once committed they never change.',
        hint = 'Correct a wrong event with another event; purge only by retention.';
end
$$;
CREATE FUNCTION postrider.refuse_field(field text, problem text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    raise exception '%: %', field, problem
        using errcode = 'PR004', column = field,
        detail = 'The event was not appended.',
        hint = 'Correct the field and append again.';
end
$$;
CREATE FUNCTION postrider.refuse_other_content(e postrider.new_event, event_id uuid, stored text, stored_digest bytea) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
    kept constant json := stored::json;
    offered constant bytea := sha256(convert_to(postrider.envelope_text(
        e, event_id,
        coalesce(postrider.parse_time(e.occurred_at), postrider.parse_time(kept ->> 'occurredAt')),
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
CREATE FUNCTION postrider.refuse_too_large(destination text, length bigint, limit_bytes bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'payload of % bytes is over the % bytes that destination "%" takes',
        length, limit_bytes, destination
        using errcode = 'PR003',
        detail = 'The event was not appended.',
        hint = 'Send a reference instead of the content, or raise max_payload_bytes of the destination.',
        -- For programs: the facts of the message.
        constraint = json_build_object('destination', destination, 'length', length, 'limit', limit_bytes)::text;
end
$$;
CREATE FUNCTION postrider.run_positions(run_starts bigint[], run_lengths integer[]) RETURNS SETOF bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (run.first + step.step)
    FROM UNNEST(run_positions.run_starts, run_positions.run_lengths) WITH ORDINALITY run(first, length, n),
     LATERAL generate_series(0, (run.length - 1)) step(step)
   ORDER BY run.n, step.step;
END;
CREATE FUNCTION postrider.uuid_v7(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send((floor((EXTRACT(epoch FROM at) * (1000)::numeric)))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;
CREATE TABLE postrider.attempt_exceptions (
    attempt_id uuid NOT NULL,
    "position" bigint NOT NULL,
    outcome text NOT NULL COLLATE pg_catalog."C",
    code text NOT NULL COLLATE pg_catalog."C",
    detail text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT detail_is_bounded CHECK ((octet_length(detail) <= 512)),
    CONSTRAINT outcome_is_known CHECK ((outcome = ANY (ARRAY['retry'::text, 'unknown'::text, 'quarantined'::text])))
);
CREATE TABLE postrider.attempts (
    attempt_id uuid NOT NULL,
    session_id uuid NOT NULL,
    destination_id integer NOT NULL,
    registered_at timestamp with time zone NOT NULL,
    run_starts bigint[] NOT NULL,
    run_lengths integer[] NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    CONSTRAINT range_holds CHECK (((first_position = run_starts[1]) AND (last_position >= first_position))),
    CONSTRAINT runs_pair CHECK (((cardinality(run_starts) > 0) AND (cardinality(run_starts) = cardinality(run_lengths))))
);
CREATE TABLE postrider.breakers (
    session_id uuid NOT NULL,
    destination_id integer NOT NULL,
    since timestamp with time zone NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    detail text NOT NULL COLLATE pg_catalog."C",
    next_probe_at timestamp with time zone NOT NULL,
    refused boolean DEFAULT false NOT NULL
);
CREATE TABLE postrider.deliveries (
    "position" bigint NOT NULL,
    key_hash bigint NOT NULL,
    available_at timestamp with time zone NOT NULL,
    first_attempt_at timestamp with time zone,
    event_id uuid NOT NULL,
    destination_id integer NOT NULL,
    payload_bytes integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    lane smallint NOT NULL,
    state smallint DEFAULT 0 NOT NULL,
    waited boolean DEFAULT false NOT NULL,
    CONSTRAINT attempts_not_negative CHECK ((attempts >= 0)),
    CONSTRAINT available_at_is_writable CHECK (((available_at >= '0001-01-01 05:41:16+05:41:16'::timestamp with time zone) AND (available_at < '10000-01-01 05:45:00+05:45'::timestamp with time zone))),
    CONSTRAINT exception_has_waited CHECK ((waited OR ((state = 0) AND (attempts = 0)))),
    CONSTRAINT state_is_known CHECK (((state >= 0) AND (state <= 2)))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');
CREATE TABLE postrider.open_attempts (
    attempt_id uuid NOT NULL,
    session_id uuid NOT NULL,
    destination_id integer NOT NULL
);
CREATE VIEW postrider.deliveries_status AS
 SELECT s.event_id,
    s."position",
    s.destination_id,
    s.destination,
    s.attempts,
    s.available_at,
    s.state,
        CASE s.state
            WHEN 'acknowledged'::text THEN 'PUBLISHED'::text
            WHEN 'sending'::text THEN 'SENDING'::text
            WHEN 'unknown'::text THEN 'DISPATCH_UNKNOWN'::text
            WHEN 'quarantined'::text THEN 'RETRY_CLAIMED'::text
            ELSE
            CASE
                WHEN s.waited THEN 'RETRY_CLAIMED'::text
                ELSE 'PENDING'::text
            END
        END AS dispatch,
        CASE s.state
            WHEN 'sending'::text THEN 'leased'::text
            WHEN 'unknown'::text THEN 'pending'::text
            ELSE s.state
        END AS lease,
        CASE s.state
            WHEN 'acknowledged'::text THEN 'published'::text
            WHEN 'sending'::text THEN 'publishing'::text
            WHEN 'quarantined'::text THEN 'dead_letter'::text
            ELSE
            CASE
                WHEN s.waited THEN 'failed'::text
                ELSE 'pending'::text
            END
        END AS outbox
   FROM ( SELECT e.event_id,
            e."position",
            m.destination_id,
            t.name AS destination,
            o.attempts,
            o.waited,
            o.available_at,
                CASE
                    WHEN (o."position" IS NULL) THEN 'acknowledged'::text
                    WHEN (o.state = 1) THEN 'unknown'::text
                    WHEN (o.state = 2) THEN 'quarantined'::text
                    WHEN (EXISTS ( SELECT
                       FROM ((postrider.open_attempts open
                         JOIN postrider.attempts a USING (attempt_id))
                         CROSS JOIN LATERAL UNNEST(a.run_starts, a.run_lengths) run(first, length))
                      WHERE ((open.destination_id = m.destination_id) AND (e."position" >= run.first) AND (e."position" < (run.first + run.length))))) THEN 'sending'::text
                    ELSE 'pending'::text
                END AS state
           FROM (((postrider.events e
             JOIN postrider.delivery_set_members m USING (delivery_set_id, event_type, schema_version))
             JOIN postrider.destinations t ON ((t.destination_id = m.destination_id)))
             LEFT JOIN postrider.deliveries o ON (((o.destination_id = m.destination_id) AND (o."position" = e."position"))))) s;
CREATE TABLE postrider.lanes (
    destination_id integer NOT NULL,
    lane smallint NOT NULL,
    session_id uuid,
    since timestamp with time zone,
    CONSTRAINT held_since CHECK (((session_id IS NULL) = (since IS NULL)))
)
WITH (fillfactor='50');
CREATE TABLE postrider.quarantine (
    quarantine_id bigint NOT NULL,
    destination_id integer NOT NULL,
    "position" bigint NOT NULL,
    event_id uuid NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    detail text NOT NULL COLLATE pg_catalog."C",
    since timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    resolved_by text COLLATE pg_catalog."C",
    CONSTRAINT detail_is_bounded CHECK ((octet_length(detail) <= 512)),
    CONSTRAINT resolved_by_someone CHECK (((resolved_at IS NULL) = (resolved_by IS NULL)))
);
CREATE TABLE postrider.sessions (
    session_id uuid NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL COLLATE pg_catalog."C",
    exclusive boolean NOT NULL,
    serves integer[] NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    ended_reason text COLLATE pg_catalog."C",
    CONSTRAINT ended_with_reason CHECK (((ended_at IS NULL) = (ended_reason IS NULL)))
)
WITH (fillfactor='50');
CREATE TABLE postrider.suspensions (
    destination_id integer NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    detail text NOT NULL COLLATE pg_catalog."C",
    since timestamp with time zone NOT NULL
);
CREATE FUNCTION postrider.why(event_id uuid) RETURNS TABLE(destination text, state text, because text, next_at timestamp with time zone)
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT NULL::text AS text,
     'absent'::text,
     'no such event is committed: its transaction rolled back or is still open, or it was appended to another database'::text,
     NULL::timestamp with time zone AS timestamptz
   WHERE (NOT (EXISTS ( SELECT
            FROM postrider.events e
           WHERE (e.event_id = why.event_id))))
 UNION ALL
  SELECT s.destination,
     s.state,
         CASE
             WHEN (s.state = 'acknowledged'::text) THEN COALESCE(( SELECT format('receipt %s of attempt %s at %s'::text, r.shared, r.attempt_id, postrider.time_text(r.accepted_at)) AS format
                FROM postrider.receipt(why.event_id) r(destination_id, destination, attempt_id, accepted_at, shared, number, late)
               WHERE (r.destination_id = s.destination_id)), 'no open delivery and no receipt: report this'::text)
             WHEN (s.state = 'quarantined'::text) THEN ( SELECT format('quarantined since %s: %s %s; it waits for a replay'::text, postrider.time_text(q.since), q.code, q.detail) AS format
                FROM postrider.quarantine q
               WHERE ((q.destination_id = s.destination_id) AND (q."position" = s."position") AND (q.resolved_at IS NULL)))
             WHEN (s.state = 'unknown'::text) THEN COALESCE(( SELECT format('attempt %s may have been accepted: %s %s'::text, x.attempt_id, x.code, x.detail) AS format
                FROM (postrider.attempt_exceptions x
                  JOIN postrider.attempts a USING (attempt_id))
               WHERE ((x."position" = s."position") AND (a.destination_id = s.destination_id) AND (int8range(a.first_position, a.last_position, '[]'::text) @> s."position"))
               ORDER BY a.registered_at DESC
              LIMIT 1), 'an attempt may have been accepted'::text)
             WHEN (s.state = 'sending'::text) THEN ( SELECT format('in attempt %s of %s (session %s), whose lease ends at %s'::text, a.attempt_id, w.owner, w.session_id, postrider.time_text(w.expires_at)) AS format
                FROM ((postrider.open_attempts o
                  JOIN postrider.attempts a USING (attempt_id))
                  JOIN postrider.sessions w ON ((w.session_id = a.session_id)))
               WHERE ((o.destination_id = s.destination_id) AND (int8range(a.first_position, a.last_position, '[]'::text) @> s."position"))
               ORDER BY a.registered_at DESC
              LIMIT 1)
             WHEN (stop.since IS NOT NULL) THEN format('the destination is suspended since %s: %s %s'::text, postrider.time_text(stop.since), stop.code, stop.detail)
             WHEN (held."position" IS NOT NULL) THEN format('waits behind the delivery of its key at position %s (%s)'::text, held."position", (ARRAY['waits for its retry'::text, 'unknown'::text, 'quarantined'::text])[(held.state + 1)])
             WHEN (breaker.since IS NOT NULL) THEN format('the breaker of the destination is open since %s: %s %s'::text, postrider.time_text(breaker.since), breaker.code, breaker.detail)
             WHEN (d.waited AND (d.available_at > clock_timestamp())) THEN format('next try at %s, after %s charged attempts'::text, postrider.time_text(d.available_at), d.attempts)
             WHEN (l.session_id IS NULL) THEN 'no worker holds its lane'::text
             ELSE format('due; its lane is held by %s'::text, ( SELECT w.owner
                FROM postrider.sessions w
               WHERE (w.session_id = l.session_id)))
         END AS format,
         CASE
             WHEN ((s.state = 'pending'::text) AND (stop.since IS NULL) AND (held."position" IS NULL)) THEN COALESCE(breaker.next_probe_at,
             CASE
                 WHEN d.waited THEN d.available_at
                 ELSE NULL::timestamp with time zone
             END, clock_timestamp())
             WHEN ((s.state = 'pending'::text) AND (held.state = 0)) THEN held.available_at
             WHEN (s.state = 'sending'::text) THEN ( SELECT max(w.expires_at) AS max
                FROM (postrider.open_attempts o
                  JOIN postrider.sessions w ON ((w.session_id = o.session_id)))
               WHERE (o.destination_id = s.destination_id))
             ELSE NULL::timestamp with time zone
         END AS "case"
    FROM (((((postrider.deliveries_status s
      LEFT JOIN postrider.deliveries d ON (((d.destination_id = s.destination_id) AND (d."position" = s."position"))))
      LEFT JOIN postrider.lanes l ON (((l.destination_id = s.destination_id) AND (l.lane = d.lane))))
      LEFT JOIN postrider.suspensions stop ON ((stop.destination_id = s.destination_id)))
      LEFT JOIN LATERAL ( SELECT b.since,
             b.code,
             b.detail,
             b.next_probe_at
            FROM postrider.breakers b
           WHERE (b.destination_id = s.destination_id)
           ORDER BY b.since
          LIMIT 1) breaker ON (true))
      LEFT JOIN LATERAL ( SELECT h."position",
             h.state,
             h.available_at
            FROM (postrider.deliveries h
              JOIN postrider.destinations t USING (destination_id))
           WHERE ((h.destination_id = s.destination_id) AND (h.key_hash = d.key_hash) AND (h."position" < s."position") AND h.waited AND (t.ordering <> 'none'::text) AND ((h.state = 1) OR ((h.state = 2) AND (t.on_quarantine = 'hold'::text)) OR ((h.state = 0) AND (h.available_at > clock_timestamp()))))
           ORDER BY h."position"
          LIMIT 1) held ON (true))
   WHERE (s.event_id = why.event_id);
END;
CREATE TABLE postrider.attempt_finishes (
    attempt_id uuid NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    acknowledged integer NOT NULL,
    exceptions integer NOT NULL
);
CREATE TABLE postrider.audit_log (
    audit_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    changed bigint NOT NULL,
    subject text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE postrider.audit_log ALTER COLUMN audit_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.audit_log_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE postrider.delivery_set_activations ALTER COLUMN activation_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.delivery_set_activations_activation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE postrider.delivery_sets (
    delivery_set_id integer NOT NULL,
    version bigint NOT NULL,
    digest bytea NOT NULL,
    canonical text NOT NULL COLLATE pg_catalog."C",
    registered_at timestamp with time zone NOT NULL,
    CONSTRAINT digest_is_of_canonical CHECK ((digest = sha256(convert_to(canonical, 'UTF8'::name))))
);
ALTER TABLE postrider.delivery_sets ALTER COLUMN delivery_set_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.delivery_sets_delivery_set_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE postrider.duplicate_receipts (
    attempt_id uuid NOT NULL,
    "position" bigint NOT NULL,
    destination_id integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    shared text NOT NULL COLLATE pg_catalog."C",
    shared_digest bytea NOT NULL,
    number bigint,
    late boolean NOT NULL
);
ALTER TABLE postrider.event_types ALTER COLUMN event_type_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.event_types_event_type_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE postrider.events_default (
    event_id uuid NOT NULL,
    "position" bigint DEFAULT nextval('postrider.event_position'::regclass) NOT NULL,
    delivery_set_id integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    event_type text NOT NULL COLLATE pg_catalog."C",
    schema_version text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    partition_key text NOT NULL COLLATE pg_catalog."C",
    envelope text NOT NULL COLLATE pg_catalog."C",
    envelope_digest bytea NOT NULL,
    payload bytea NOT NULL,
    headers text COLLATE pg_catalog."C",
    traceparent text COLLATE pg_catalog."C",
    tracestate text COLLATE pg_catalog."C",
    CONSTRAINT appended_at_is_writable CHECK (((appended_at >= '0001-01-01 05:41:16+05:41:16'::timestamp with time zone) AND (appended_at < '10000-01-01 05:45:00+05:45'::timestamp with time zone))),
    CONSTRAINT digest_is_of_envelope CHECK ((envelope_digest = sha256(convert_to(envelope, 'UTF8'::name)))),
    CONSTRAINT position_is_positive CHECK (("position" > 0))
)
WITH (toast_tuple_target='4080');
CREATE TABLE postrider.findings (
    finding_id bigint NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    destination_id integer,
    "position" bigint,
    detail text NOT NULL COLLATE pg_catalog."C",
    detail_digest bytea NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT detail_is_bounded CHECK ((octet_length(detail) <= 2048))
);
ALTER TABLE postrider.findings ALTER COLUMN finding_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.findings_finding_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE postrider.quarantine ALTER COLUMN quarantine_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.quarantine_quarantine_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE postrider.receipt_batches ALTER COLUMN receipt_batch_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.receipt_batches_receipt_batch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW postrider.receipts AS
 SELECT e.event_id,
    p."position",
    b.destination_id,
    d.name AS destination,
    b.attempt_id,
    b.accepted_at,
    (b.shared)::json AS shared,
    (b.run_numbers[run.n] + p.step) AS number,
    b.late
   FROM ((((postrider.receipt_batches b
     JOIN postrider.destinations d USING (destination_id))
     CROSS JOIN LATERAL UNNEST(b.run_starts, b.run_lengths) WITH ORDINALITY run(first, length, n))
     CROSS JOIN LATERAL ( SELECT (run.first + step.step) AS "position",
            step.step
           FROM generate_series(0, (run.length - 1)) step(step)) p)
     JOIN postrider.events e ON ((e."position" = p."position")));
CREATE TABLE postrider.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    checksum bytea NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    program text NOT NULL COLLATE pg_catalog."C"
);
CREATE UNLOGGED TABLE postrider.sleepers (
    session_id uuid NOT NULL,
    until timestamp with time zone NOT NULL
);
ALTER TABLE ONLY postrider.events ATTACH PARTITION postrider.events_default DEFAULT;
ALTER TABLE ONLY postrider.attempt_exceptions
    ADD CONSTRAINT attempt_exceptions_pkey PRIMARY KEY (attempt_id, "position");
ALTER TABLE ONLY postrider.attempt_finishes
    ADD CONSTRAINT attempt_finishes_pkey PRIMARY KEY (attempt_id);
ALTER TABLE ONLY postrider.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (attempt_id);
ALTER TABLE ONLY postrider.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (audit_id);
ALTER TABLE ONLY postrider.breakers
    ADD CONSTRAINT breakers_pkey PRIMARY KEY (session_id, destination_id);
ALTER TABLE ONLY postrider.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (destination_id, "position");
ALTER TABLE ONLY postrider.delivery_set_activations
    ADD CONSTRAINT delivery_set_activations_pkey PRIMARY KEY (activation_id);
ALTER TABLE ONLY postrider.delivery_set_events
    ADD CONSTRAINT delivery_set_events_pkey PRIMARY KEY (delivery_set_id, event_type, schema_version);
ALTER TABLE ONLY postrider.delivery_set_members
    ADD CONSTRAINT delivery_set_members_pkey PRIMARY KEY (delivery_set_id, event_type, schema_version, destination_id);
ALTER TABLE ONLY postrider.delivery_sets
    ADD CONSTRAINT delivery_sets_digest_key UNIQUE (digest);
ALTER TABLE ONLY postrider.delivery_sets
    ADD CONSTRAINT delivery_sets_pkey PRIMARY KEY (delivery_set_id);
ALTER TABLE ONLY postrider.delivery_sets
    ADD CONSTRAINT delivery_sets_version_key UNIQUE (version);
ALTER TABLE ONLY postrider.destinations
    ADD CONSTRAINT destinations_digest_key UNIQUE (digest);
ALTER TABLE ONLY postrider.destinations
    ADD CONSTRAINT destinations_name_generation_key UNIQUE (name, generation);
ALTER TABLE ONLY postrider.destinations
    ADD CONSTRAINT destinations_pkey PRIMARY KEY (destination_id);
ALTER TABLE ONLY postrider.event_types_current
    ADD CONSTRAINT event_types_current_pkey PRIMARY KEY (event_type, schema_version);
ALTER TABLE ONLY postrider.event_types
    ADD CONSTRAINT event_types_pkey PRIMARY KEY (event_type_id);
ALTER TABLE ONLY postrider.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY postrider.events_default
    ADD CONSTRAINT events_default_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY postrider.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (finding_id);
ALTER TABLE ONLY postrider.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (destination_id, lane);
ALTER TABLE ONLY postrider.open_attempts
    ADD CONSTRAINT open_attempts_pkey PRIMARY KEY (attempt_id);
ALTER TABLE ONLY postrider.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (quarantine_id);
ALTER TABLE ONLY postrider.receipt_batches
    ADD CONSTRAINT receipt_batches_pkey PRIMARY KEY (receipt_batch_id);
ALTER TABLE ONLY postrider.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY postrider.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (session_id);
ALTER TABLE ONLY postrider.sleepers
    ADD CONSTRAINT sleepers_pkey PRIMARY KEY (session_id);
ALTER TABLE ONLY postrider.suspensions
    ADD CONSTRAINT suspensions_pkey PRIMARY KEY (destination_id);
CREATE INDEX attempts_range ON postrider.attempts USING gist (int8range(first_position, last_position, '[]'::text));
CREATE INDEX deliveries_due ON postrider.deliveries USING btree (destination_id, available_at) WHERE (waited AND (state = 0));
CREATE INDEX deliveries_exceptions ON postrider.deliveries USING btree (destination_id, key_hash, "position") WHERE waited;
CREATE INDEX deliveries_stuck ON postrider.deliveries USING btree (destination_id, state, "position") WHERE (state <> 0);
CREATE UNIQUE INDEX duplicate_receipts_once ON postrider.duplicate_receipts USING btree ("position", attempt_id, shared_digest, COALESCE(number, ('-1'::integer)::bigint));
CREATE INDEX event_types_event_type_schema_version_idx ON postrider.event_types USING btree (event_type, schema_version);
CREATE INDEX events_position ON ONLY postrider.events USING btree ("position");
CREATE INDEX events_default_position_idx ON postrider.events_default USING btree ("position");
CREATE UNIQUE INDEX findings_once ON postrider.findings USING btree (code, COALESCE(destination_id, 0), COALESCE("position", (0)::bigint), detail_digest) WHERE (resolved_at IS NULL);
CREATE INDEX lanes_session ON postrider.lanes USING btree (session_id) WHERE (session_id IS NOT NULL);
CREATE INDEX open_attempts_session ON postrider.open_attempts USING btree (session_id);
CREATE INDEX quarantine_code ON postrider.quarantine USING btree (code, destination_id, "position") WHERE (resolved_at IS NULL);
CREATE INDEX quarantine_event ON postrider.quarantine USING btree (event_id);
CREATE UNIQUE INDEX quarantine_open ON postrider.quarantine USING btree (destination_id, "position") WHERE (resolved_at IS NULL);
CREATE INDEX receipt_batches_range ON postrider.receipt_batches USING gist (int8range(first_position, last_position, '[]'::text));
CREATE UNIQUE INDEX sessions_exclusive ON postrider.sessions USING btree (exclusive) WHERE (exclusive AND (ended_at IS NULL));
CREATE INDEX sessions_open ON postrider.sessions USING btree (opened_at) WHERE (ended_at IS NULL);
CREATE INDEX sessions_opened ON postrider.sessions USING btree (opened_at, session_id);
ALTER INDEX postrider.events_pkey ATTACH PARTITION postrider.events_default_pkey;
ALTER INDEX postrider.events_position ATTACH PARTITION postrider.events_default_position_idx;
CREATE TRIGGER identity_stays BEFORE UPDATE OF destination_id, "position", event_id, key_hash, lane, payload_bytes ON postrider.deliveries FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.attempt_exceptions FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.attempt_finishes FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.attempts FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.audit_log FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.delivery_set_activations FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.delivery_set_events FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.delivery_set_members FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.delivery_sets FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.destinations FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.duplicate_receipts FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.event_types FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.events FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER immutable BEFORE DELETE OR UPDATE ON postrider.receipt_batches FOR EACH ROW EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.attempt_exceptions FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.attempt_finishes FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.attempts FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.audit_log FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.deliveries FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.delivery_set_activations FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.delivery_set_events FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.delivery_set_members FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.delivery_sets FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.destinations FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.duplicate_receipts FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.event_types FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.events FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.events_default FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.quarantine FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.receipt_batches FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON postrider.sessions FOR EACH STATEMENT EXECUTE FUNCTION postrider.refuse_change();
CREATE TRIGGER number_before_position BEFORE INSERT ON postrider.events FOR EACH STATEMENT EXECUTE FUNCTION postrider.number_before_position();
CREATE TRIGGER prescribe_deliveries AFTER INSERT ON postrider.events REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION postrider.prescribe_deliveries();
ALTER TABLE postrider.events ENABLE ALWAYS TRIGGER prescribe_deliveries;
CREATE TRIGGER prescribe_deliveries AFTER INSERT ON postrider.events_default REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION postrider.prescribe_deliveries();
ALTER TABLE postrider.events_default ENABLE ALWAYS TRIGGER prescribe_deliveries;
ALTER TABLE ONLY postrider.attempt_finishes
    ADD CONSTRAINT attempt_finishes_attempt_id_fkey FOREIGN KEY (attempt_id) REFERENCES postrider.attempts(attempt_id);
ALTER TABLE ONLY postrider.attempts
    ADD CONSTRAINT attempts_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.attempts
    ADD CONSTRAINT attempts_session_id_fkey FOREIGN KEY (session_id) REFERENCES postrider.sessions(session_id);
ALTER TABLE ONLY postrider.breakers
    ADD CONSTRAINT breakers_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.breakers
    ADD CONSTRAINT breakers_session_id_fkey FOREIGN KEY (session_id) REFERENCES postrider.sessions(session_id);
ALTER TABLE ONLY postrider.delivery_set_activations
    ADD CONSTRAINT delivery_set_activations_delivery_set_id_fkey FOREIGN KEY (delivery_set_id) REFERENCES postrider.delivery_sets(delivery_set_id);
ALTER TABLE ONLY postrider.delivery_set_events
    ADD CONSTRAINT delivery_set_events_delivery_set_id_fkey FOREIGN KEY (delivery_set_id) REFERENCES postrider.delivery_sets(delivery_set_id);
ALTER TABLE ONLY postrider.delivery_set_members
    ADD CONSTRAINT delivery_set_members_delivery_set_id_event_type_schema_ver_fkey FOREIGN KEY (delivery_set_id, event_type, schema_version) REFERENCES postrider.delivery_set_events(delivery_set_id, event_type, schema_version);
ALTER TABLE ONLY postrider.delivery_set_members
    ADD CONSTRAINT delivery_set_members_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.duplicate_receipts
    ADD CONSTRAINT duplicate_receipts_attempt_id_fkey FOREIGN KEY (attempt_id) REFERENCES postrider.attempts(attempt_id);
ALTER TABLE ONLY postrider.duplicate_receipts
    ADD CONSTRAINT duplicate_receipts_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.event_types_current
    ADD CONSTRAINT event_types_current_event_type_id_fkey FOREIGN KEY (event_type_id) REFERENCES postrider.event_types(event_type_id);
ALTER TABLE ONLY postrider.lanes
    ADD CONSTRAINT lanes_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.lanes
    ADD CONSTRAINT lanes_session_id_fkey FOREIGN KEY (session_id) REFERENCES postrider.sessions(session_id);
ALTER TABLE ONLY postrider.open_attempts
    ADD CONSTRAINT open_attempts_attempt_id_fkey FOREIGN KEY (attempt_id) REFERENCES postrider.attempts(attempt_id);
ALTER TABLE ONLY postrider.quarantine
    ADD CONSTRAINT quarantine_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.receipt_batches
    ADD CONSTRAINT receipt_batches_attempt_id_fkey FOREIGN KEY (attempt_id) REFERENCES postrider.attempts(attempt_id);
ALTER TABLE ONLY postrider.receipt_batches
    ADD CONSTRAINT receipt_batches_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
ALTER TABLE ONLY postrider.suspensions
    ADD CONSTRAINT suspensions_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES postrider.destinations(destination_id);
GRANT USAGE ON SCHEMA postrider TO postrider_producer;
GRANT USAGE ON SCHEMA postrider TO postrider_relay;
GRANT USAGE ON SCHEMA postrider TO postrider_consumer;
GRANT USAGE ON SCHEMA postrider TO postrider_viewer;
GRANT USAGE ON SCHEMA postrider TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append(event_type text, payload bytea, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.append(event_type text, payload bytea, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) TO postrider_producer;
GRANT ALL ON FUNCTION postrider.append(event_type text, payload bytea, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append(event_type text, payload text, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.append(event_type text, payload text, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) TO postrider_producer;
GRANT ALL ON FUNCTION postrider.append(event_type text, payload text, aggregate_type text, aggregate_id text, schema_version text, INOUT event_id uuid, tenant text, aggregate_version bigint, content_type text, partition_key text, actor text, request_id text, correlation_id text, causation_id text, operation_id text, occurred_at text, traceparent text, tracestate text, headers json, OUT "position" bigint, OUT already boolean) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append_batch(events json) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.append_batch(events json) TO postrider_producer;
GRANT ALL ON FUNCTION postrider.append_batch(events json) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append_batch(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.append_batch(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) TO postrider_producer;
GRANT ALL ON FUNCTION postrider.append_batch(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append_checked(checked_with integer, schema_digests text[], given_ids uuid[], event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.append_checked(checked_with integer, schema_digests text[], given_ids uuid[], event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) TO postrider_producer;
GRANT ALL ON FUNCTION postrider.append_checked(checked_with integer, schema_digests text[], given_ids uuid[], event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.append_rows(given postrider.new_event[], moment timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.check_fields(e postrider.new_event) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.check_other_fields(e postrider.new_event) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.time_text(at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.time_text(at timestamp with time zone) TO postrider_relay;
GRANT ALL ON FUNCTION postrider.time_text(at timestamp with time zone) TO postrider_viewer;
GRANT ALL ON FUNCTION postrider.time_text(at timestamp with time zone) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.envelope_text(e postrider.new_event, event_id uuid, occurred_at timestamp with time zone, delivery_set_version bigint, delivery_set_digest text, schema_digest text) FROM PUBLIC;
GRANT SELECT ON TABLE postrider.delivery_set_activations TO postrider_relay;
GRANT SELECT ON TABLE postrider.delivery_set_activations TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.delivery_set_activations TO postrider_operator;
GRANT SELECT ON TABLE postrider.delivery_set_events TO postrider_relay;
GRANT SELECT ON TABLE postrider.delivery_set_events TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.delivery_set_events TO postrider_operator;
GRANT SELECT ON TABLE postrider.delivery_set_members TO postrider_relay;
GRANT SELECT ON TABLE postrider.delivery_set_members TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.delivery_set_members TO postrider_operator;
GRANT SELECT ON TABLE postrider.destinations TO postrider_relay;
GRANT SELECT ON TABLE postrider.destinations TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.destinations TO postrider_operator;
GRANT SELECT ON TABLE postrider.event_types TO postrider_relay;
GRANT SELECT ON TABLE postrider.event_types TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.event_types TO postrider_operator;
GRANT SELECT ON TABLE postrider.event_types_current TO postrider_relay;
GRANT SELECT ON TABLE postrider.event_types_current TO postrider_viewer;
GRANT SELECT,INSERT,UPDATE ON TABLE postrider.event_types_current TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.event_registry() FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.event_registry() TO postrider_producer;
GRANT ALL ON FUNCTION postrider.event_registry() TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.expect_rows(actual bigint, expected bigint, code text) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.expect_rows(actual bigint, expected bigint, code text) TO postrider_relay;
REVOKE ALL ON FUNCTION postrider.fence(session uuid, moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.fence(session uuid, moment timestamp with time zone) TO postrider_relay;
REVOKE ALL ON FUNCTION postrider.is_media_type(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.is_trace_context(traceparent text, tracestate text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.parse_time(given text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.other_fields_hold(e postrider.new_event) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.fields_hold(e postrider.new_event) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.header_pairs(headers json) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.is_json_media(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.json_depth(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.key_hash(partition_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.key_hash(partition_key text) TO postrider_relay;
GRANT ALL ON FUNCTION postrider.key_hash(partition_key text) TO postrider_viewer;
GRANT ALL ON FUNCTION postrider.key_hash(partition_key text) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.may_be_deep(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.new_events(event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[], schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[], content_types text[], partition_keys text[], actors text[], request_ids text[], correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[], traceparents text[], tracestates text[], headers json[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.number_before_position() FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.prescribe_deliveries() FROM PUBLIC;
GRANT SELECT ON TABLE postrider.events TO postrider_relay;
GRANT SELECT ON TABLE postrider.events TO postrider_viewer;
GRANT SELECT ON TABLE postrider.events TO postrider_operator;
GRANT SELECT,INSERT ON TABLE postrider.receipt_batches TO postrider_relay;
GRANT SELECT ON TABLE postrider.receipt_batches TO postrider_viewer;
GRANT SELECT ON TABLE postrider.receipt_batches TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.receipt(event_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.receipt(event_id uuid) TO postrider_relay;
GRANT ALL ON FUNCTION postrider.receipt(event_id uuid) TO postrider_viewer;
GRANT ALL ON FUNCTION postrider.receipt(event_id uuid) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.refuse_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.refuse_field(field text, problem text) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.refuse_other_content(e postrider.new_event, event_id uuid, stored text, stored_digest bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.refuse_too_large(destination text, length bigint, limit_bytes bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION postrider.run_positions(run_starts bigint[], run_lengths integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.run_positions(run_starts bigint[], run_lengths integer[]) TO postrider_relay;
GRANT ALL ON FUNCTION postrider.run_positions(run_starts bigint[], run_lengths integer[]) TO postrider_viewer;
GRANT ALL ON FUNCTION postrider.run_positions(run_starts bigint[], run_lengths integer[]) TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.uuid_v7(at timestamp with time zone) FROM PUBLIC;
GRANT SELECT,INSERT ON TABLE postrider.attempt_exceptions TO postrider_relay;
GRANT SELECT ON TABLE postrider.attempt_exceptions TO postrider_viewer;
GRANT SELECT ON TABLE postrider.attempt_exceptions TO postrider_operator;
GRANT SELECT,INSERT ON TABLE postrider.attempts TO postrider_relay;
GRANT SELECT ON TABLE postrider.attempts TO postrider_viewer;
GRANT SELECT ON TABLE postrider.attempts TO postrider_operator;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE postrider.breakers TO postrider_relay;
GRANT SELECT ON TABLE postrider.breakers TO postrider_viewer;
GRANT SELECT ON TABLE postrider.breakers TO postrider_operator;
GRANT SELECT,DELETE ON TABLE postrider.deliveries TO postrider_relay;
GRANT SELECT ON TABLE postrider.deliveries TO postrider_viewer;
GRANT SELECT ON TABLE postrider.deliveries TO postrider_operator;
GRANT UPDATE(available_at) ON TABLE postrider.deliveries TO postrider_relay;
GRANT UPDATE(available_at) ON TABLE postrider.deliveries TO postrider_operator;
GRANT UPDATE(first_attempt_at) ON TABLE postrider.deliveries TO postrider_relay;
GRANT UPDATE(attempts) ON TABLE postrider.deliveries TO postrider_relay;
GRANT UPDATE(attempts) ON TABLE postrider.deliveries TO postrider_operator;
GRANT UPDATE(state) ON TABLE postrider.deliveries TO postrider_relay;
GRANT UPDATE(state) ON TABLE postrider.deliveries TO postrider_operator;
GRANT UPDATE(waited) ON TABLE postrider.deliveries TO postrider_relay;
GRANT UPDATE(waited) ON TABLE postrider.deliveries TO postrider_operator;
GRANT SELECT,INSERT,DELETE ON TABLE postrider.open_attempts TO postrider_relay;
GRANT SELECT ON TABLE postrider.open_attempts TO postrider_viewer;
GRANT SELECT ON TABLE postrider.open_attempts TO postrider_operator;
GRANT SELECT ON TABLE postrider.deliveries_status TO postrider_relay;
GRANT SELECT ON TABLE postrider.deliveries_status TO postrider_viewer;
GRANT SELECT ON TABLE postrider.deliveries_status TO postrider_operator;
GRANT SELECT ON TABLE postrider.lanes TO postrider_relay;
GRANT SELECT ON TABLE postrider.lanes TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.lanes TO postrider_operator;
GRANT UPDATE(session_id) ON TABLE postrider.lanes TO postrider_relay;
GRANT UPDATE(since) ON TABLE postrider.lanes TO postrider_relay;
GRANT SELECT,INSERT,UPDATE ON TABLE postrider.quarantine TO postrider_relay;
GRANT SELECT ON TABLE postrider.quarantine TO postrider_viewer;
GRANT SELECT ON TABLE postrider.quarantine TO postrider_operator;
GRANT UPDATE(resolved_at) ON TABLE postrider.quarantine TO postrider_operator;
GRANT UPDATE(resolved_by) ON TABLE postrider.quarantine TO postrider_operator;
GRANT SELECT,INSERT,UPDATE ON TABLE postrider.sessions TO postrider_relay;
GRANT SELECT ON TABLE postrider.sessions TO postrider_viewer;
GRANT SELECT ON TABLE postrider.sessions TO postrider_operator;
GRANT SELECT,INSERT,UPDATE ON TABLE postrider.suspensions TO postrider_relay;
GRANT SELECT ON TABLE postrider.suspensions TO postrider_viewer;
GRANT SELECT,DELETE ON TABLE postrider.suspensions TO postrider_operator;
REVOKE ALL ON FUNCTION postrider.why(event_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION postrider.why(event_id uuid) TO postrider_relay;
GRANT ALL ON FUNCTION postrider.why(event_id uuid) TO postrider_viewer;
GRANT ALL ON FUNCTION postrider.why(event_id uuid) TO postrider_operator;
GRANT SELECT,INSERT ON TABLE postrider.attempt_finishes TO postrider_relay;
GRANT SELECT ON TABLE postrider.attempt_finishes TO postrider_viewer;
GRANT SELECT ON TABLE postrider.attempt_finishes TO postrider_operator;
GRANT SELECT ON TABLE postrider.audit_log TO postrider_relay;
GRANT SELECT ON TABLE postrider.audit_log TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.audit_log TO postrider_operator;
GRANT SELECT ON TABLE postrider.delivery_sets TO postrider_relay;
GRANT SELECT ON TABLE postrider.delivery_sets TO postrider_viewer;
GRANT SELECT,INSERT ON TABLE postrider.delivery_sets TO postrider_operator;
GRANT SELECT,INSERT ON TABLE postrider.duplicate_receipts TO postrider_relay;
GRANT SELECT ON TABLE postrider.duplicate_receipts TO postrider_viewer;
GRANT SELECT ON TABLE postrider.duplicate_receipts TO postrider_operator;
GRANT SELECT ON TABLE postrider.events_default TO postrider_relay;
GRANT SELECT ON TABLE postrider.events_default TO postrider_viewer;
GRANT SELECT ON TABLE postrider.events_default TO postrider_operator;
GRANT SELECT,INSERT,UPDATE ON TABLE postrider.findings TO postrider_relay;
GRANT SELECT ON TABLE postrider.findings TO postrider_viewer;
GRANT SELECT ON TABLE postrider.findings TO postrider_operator;
GRANT UPDATE(resolved_at) ON TABLE postrider.findings TO postrider_operator;
GRANT SELECT ON TABLE postrider.receipts TO postrider_relay;
GRANT SELECT ON TABLE postrider.receipts TO postrider_viewer;
GRANT SELECT ON TABLE postrider.receipts TO postrider_operator;
GRANT SELECT ON TABLE postrider.schema_migrations TO postrider_relay;
GRANT SELECT ON TABLE postrider.schema_migrations TO postrider_viewer;
GRANT SELECT ON TABLE postrider.schema_migrations TO postrider_operator;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE postrider.sleepers TO postrider_relay;
GRANT SELECT ON TABLE postrider.sleepers TO postrider_viewer;
GRANT SELECT ON TABLE postrider.sleepers TO postrider_operator;
