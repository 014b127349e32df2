-- What is known of attempts, for the careful path. $1 attempts.
select a.attempt_id, a.session_id, a.destination_id, a.run_starts, a.run_lengths,
    exists (select from {schema}.open_attempts o where o.attempt_id = a.attempt_id) as open
from {schema}.attempts a
where a.attempt_id = any ($1::uuid[])
