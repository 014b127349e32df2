-- $1 session, $2 now. Raises PR010 if the session is not live. Lock: its row, FOR KEY SHARE.
select {schema}.fence($1::uuid, $2::timestamptz)
