-- $1 session, $2 destination, $3 lanes.
update {schema}.lanes
set session_id = null, since = null
where destination_id = $2::integer and lane = any ($3::smallint[]) and session_id = $1::uuid
