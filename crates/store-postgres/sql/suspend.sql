-- $1 destination, $2 code, $3 detail, $4 now. The first reason stays.
insert into {schema}.suspensions (destination_id, code, detail, since)
values ($1::integer, $2::text, $3::text, coalesce($4::timestamptz, clock_timestamp()))
on conflict do nothing
