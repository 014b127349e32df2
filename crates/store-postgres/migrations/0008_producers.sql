-- For a producer's library that judges events before it sends them: what it may append, and an
-- append that answers a refusal as a row. An error would end the caller's transaction.

-- The registered event types that the active delivery set serves, each with its JSON Schema and
-- the tightest limit of its destinations.
create function {schema}.event_registry() returns json
language sql stable security definer set search_path = pg_catalog, pg_temp
return (
    select json_build_object(
        'deliverySetId', active.delivery_set_id,
        'eventTypes', coalesce((
            select json_agg(json_build_object(
                'eventType', served.event_type,
                'schemaVersion', served.schema_version,
                'contentType', coalesce(t.content_type, 'application/json'),
                'jsonSchema', t.json_schema,
                'limit', (
                    select json_build_object('destination', d.name, 'payloadBytes', d.max_payload_bytes)
                    from {schema}.delivery_set_members m
                    join {schema}.destinations d using (destination_id)
                    where m.delivery_set_id = served.delivery_set_id
                        and m.event_type = served.event_type
                        and m.schema_version = served.schema_version
                        and d.max_payload_bytes is not null
                    order by d.max_payload_bytes, d.name
                    limit 1
                )
            ) order by served.event_type, served.schema_version)
            from {schema}.delivery_set_events served
            left join {schema}.event_types_current c
                on c.event_type = served.event_type and c.schema_version = served.schema_version
            left join {schema}.event_types t using (event_type_id)
            where served.delivery_set_id = active.delivery_set_id
        ), '[]'::json)
    )
    from (values (1)) always(one)
    left join lateral (
        select a.delivery_set_id
        from {schema}.delivery_set_activations a
        order by a.activation_id desc
        limit 1
    ) active on true
);

-- append_batch for events that were checked against event_registry(). Nothing is written when a
-- row with a refusal comes back:
--
-- stale                the registry changed since: load it and check again
-- conflict             an id of given_ids has other content; facts say which
-- no_delivery_set      none is active
-- unknown_event_type   the active delivery set does not serve it; facts say which
--
-- checked_with is the delivery set of the registry; null if the caller knows event types only
-- from elsewhere. schema_digests are those that payloads were checked with, one per event.
-- given_ids are the event ids that may be there already; the others are fresh.
create function {schema}.append_checked(
    checked_with integer, schema_digests text[], given_ids uuid[],
    event_types text[], payloads bytea[], aggregate_types text[], aggregate_ids text[],
    schema_versions text[], event_ids uuid[], tenants text[], aggregate_versions bigint[],
    content_types text[], partition_keys text[], actors text[], request_ids text[],
    correlation_ids text[], causation_ids text[], operation_ids text[], occurred_ats text[],
    traceparents text[], tracestates text[], headers json[]
)
returns table (event_id uuid, "position" bigint, already boolean, refusal text, facts json)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    given constant {schema}.new_event[] := {schema}.new_events(event_types, payloads,
        aggregate_types, aggregate_ids, schema_versions, event_ids, tenants, aggregate_versions,
        content_types, partition_keys, actors, request_ids, correlation_ids, causation_ids,
        operation_ids, occurred_ats, traceparents, tracestates, headers);
    active constant integer := (
        select a.delivery_set_id
        from {schema}.delivery_set_activations a
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
                join {schema}.events stored on stored.event_id = (g.e).event_id
                where stored.event_id = any (given_ids)
                order by g.n
            loop
                perform {schema}.refuse_other_content(one.e, one.event_id, one.envelope, one.envelope_digest);
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
        join {schema}.event_types_current c
            on c.event_type = used.event_type and c.schema_version = used.schema_version
        join {schema}.event_types t using (event_type_id)
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
                select from {schema}.delivery_set_events served
                where served.delivery_set_id = active
                    and served.event_type = t.event_type
                    and served.schema_version = t.schema_version
            )
            and not exists (select from {schema}.events stored where stored.event_id = t.event_id)
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
    from {schema}.append_rows(given, null) a
    order by a.n;
end
$$;
