-- Appends events in the order given, see append_batch in the migrations. Parallel arrays.
select event_id, position, already from {schema}.append_batch(
    $1::text[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[],
    $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], $17::text[], $18::text[], $19::json[]
)
