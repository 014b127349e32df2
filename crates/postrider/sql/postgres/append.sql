-- Appends a batch, or answers why not in one row with a refusal. Identifiers and headers travel as
-- text, so that no driver needs to know more types than text, bytea and bigint.
select event_id::text, "position", already, refusal, facts::text
from {schema}.append_checked(
    $1::bigint::integer, $2::text[], $3::text[]::uuid[],
    $4::text[], $5::bytea[], $6::text[], $7::text[],
    $8::text[], $9::text[]::uuid[], $10::text[], $11::bigint[],
    $12::text[], $13::text[], $14::text[], $15::text[],
    $16::text[], $17::text[], $18::text[], $19::text[],
    $20::text[], $21::text[], $22::text[]::json[]
)
