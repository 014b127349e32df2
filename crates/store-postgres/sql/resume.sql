-- $1 destination. No row: it was not suspended.
delete from {schema}.suspensions where destination_id = $1::integer returning 1
