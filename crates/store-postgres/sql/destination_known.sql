-- $1 name, $2 generation.
select digest from {schema}.destinations where name = $1::text and generation = $2::bigint
