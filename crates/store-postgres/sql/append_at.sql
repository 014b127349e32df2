-- The same at a time under a test's control: $20. Only the schema's owner may.
select event_id, position, already from {schema}.append_rows(
    {schema}.new_events(
        $1::text[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[],
        $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
        $15::text[], $16::text[], $17::text[], $18::text[], $19::json[]
    ),
    $20::timestamptz
)
