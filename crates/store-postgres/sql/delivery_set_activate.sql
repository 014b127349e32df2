-- $1 delivery set, $2 actor, $3 now. No row: it is active already.
insert into {schema}.delivery_set_activations (delivery_set_id, activated_at, actor)
select $1::integer, coalesce($3::timestamptz, clock_timestamp()), $2::text
where $1::integer is distinct from (
    select delivery_set_id from {schema}.delivery_set_activations order by activation_id desc limit 1
)
returning 1
