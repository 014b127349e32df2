-- One month of events. The checks and indexes are the parent's; row triggers come with attaching,
-- statement triggers do not.
create table {schema}.{partition} (like {schema}.events including all)
    with (toast_tuple_target = 4080);
create trigger never_emptied before truncate on {schema}.{partition}
    for each statement execute function {schema}.refuse_change();
create trigger prescribe_deliveries after insert on {schema}.{partition}
    referencing new table as added
    for each statement execute function {schema}.prescribe_deliveries();
alter table {schema}.{partition} enable always trigger prescribe_deliveries;
alter table {schema}.events attach partition {schema}.{partition}
    for values from ('{from}') to ('{to}');
