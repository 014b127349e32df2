-- $1 version.
select delivery_set_id, digest from {schema}.delivery_sets where version = $1::bigint
