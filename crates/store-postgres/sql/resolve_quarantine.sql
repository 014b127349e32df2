-- A receipt closed quarantined deliveries. $1 destination, $2 positions, $3 now.
update {schema}.quarantine
set resolved_at = coalesce($3::timestamptz, clock_timestamp()), resolved_by = 'receipt'
where destination_id = $1::integer and position = any ($2::bigint[]) and resolved_at is null
