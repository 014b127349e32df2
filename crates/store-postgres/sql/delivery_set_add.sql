-- Registers a delivery set. $1 version, $2 canonical JSON, $3 now.
insert into {schema}.delivery_sets (version, digest, canonical, registered_at)
values ($1::bigint, sha256(convert_to($2::text, 'UTF8')), $2::text, coalesce($3::timestamptz, clock_timestamp()))
returning delivery_set_id
