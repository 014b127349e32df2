-- The nil UUID is what many a program writes for "none": every such event would be the same one.

alter function {schema}.check_fields({schema}.new_event) rename to check_other_fields;
create function {schema}.check_fields(e {schema}.new_event) returns void
language plpgsql stable as $$
begin
    if (e).event_id = '00000000-0000-0000-0000-000000000000' then
        perform {schema}.refuse_field('eventId', 'is the nil UUID; leave it out, or give the event an id of its own');
    end if;
    perform {schema}.check_other_fields(e);
end
$$;

alter function {schema}.fields_hold({schema}.new_event) rename to other_fields_hold;
create function {schema}.fields_hold(e {schema}.new_event) returns boolean
language sql stable parallel safe
return (e).event_id is distinct from '00000000-0000-0000-0000-000000000000'
    and {schema}.other_fields_hold(e);
