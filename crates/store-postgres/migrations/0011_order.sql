-- A transaction has its number before it draws a position. A reader that has seen all transactions
-- up to some number end then knows that nothing can appear any more at or below the positions that
-- it had seen while those were open.
--
-- A trigger of the statement fires before its first row is made, and so before nextval.

create function {schema}.number_before_position() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_current_xact_id();
    return null;
end
$$;

create trigger number_before_position before insert on {schema}.events
    for each statement execute function {schema}.number_before_position();
