-- $1 destinations. The first that is not registered.
select id from unnest($1::integer[]) id
where not exists (select from {schema}.destinations t where t.destination_id = id)
limit 1
