-- The group roles. Roles belong to the whole server: another database's migration may have made
-- them already, or be making them at this moment.
do $$
declare
    wanted text;
begin
    foreach wanted in array array[
        '{role}_producer', '{role}_relay', '{role}_consumer', '{role}_viewer', '{role}_operator'
    ] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
    end loop;
end
$$;
