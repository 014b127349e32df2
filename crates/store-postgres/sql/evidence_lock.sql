-- Locks the open rows that evidence is about, always in the same order. $1 destinations, $2
-- positions. Whoever waits here for another's receipt sees it afterwards.
select 1 from {schema}.deliveries d
where (d.destination_id, d.position) in (
    select destination_id, position from unnest($1::integer[], $2::bigint[]) as g(destination_id, position)
)
order by d.destination_id, d.position
for update
