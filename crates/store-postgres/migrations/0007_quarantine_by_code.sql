-- concurrent index quarantine_code
-- Open quarantine by code: what `dead-letter list` and a replay by reason ask. Outside a
-- transaction, while the table is written; an operator can run the same statement by hand first.
create index concurrently if not exists quarantine_code
    on {schema}.quarantine (code, destination_id, position) where resolved_at is null
