-- What each group role may do: no more than it needs. Run at the end of every migrate, so that
-- objects of a new migration are covered; granting again changes nothing.
--
-- producer  appends, and sees nothing but which event types it may append
-- consumer  uses the schema; what it needs beyond that comes with the consumer's own tables
-- relay     delivers: reads, writes attempts, receipts and sessions; creates and alters nothing
-- viewer    reads
-- operator  reads, replays, resumes, registers; appends by hand

revoke all on schema {schema} from public;
revoke all on all functions in schema {schema} from public;
revoke all on all tables in schema {schema} from public;

grant usage on schema {schema} to {role}_producer, {role}_relay, {role}_consumer, {role}_viewer, {role}_operator;

grant execute on function {schema}.append(text, bytea, text, text, text, uuid, text, bigint, text, text, text, text, text, text, text, text, text, text, json)
    to {role}_producer, {role}_operator;
grant execute on function {schema}.append(text, text, text, text, text, uuid, text, bigint, text, text, text, text, text, text, text, text, text, text, json)
    to {role}_producer, {role}_operator;
grant execute on function {schema}.append_batch(text[], bytea[], text[], text[], text[], uuid[], text[], bigint[], text[], text[], text[], text[], text[], text[], text[], text[], text[], text[], json[])
    to {role}_producer, {role}_operator;
grant execute on function {schema}.append_batch(json) to {role}_producer, {role}_operator;
grant execute on function {schema}.event_registry() to {role}_producer, {role}_operator;
grant execute on function {schema}.append_checked(integer, text[], uuid[], text[], bytea[], text[], text[], text[], uuid[], text[], bigint[], text[], text[], text[], text[], text[], text[], text[], text[], text[], text[], json[])
    to {role}_producer, {role}_operator;

grant select on all tables in schema {schema} to {role}_relay, {role}_viewer, {role}_operator;
grant execute on function
    {schema}.time_text(timestamptz), {schema}.key_hash(text), {schema}.receipt(uuid), {schema}.why(uuid),
    {schema}.run_positions(bigint[], integer[])
    to {role}_relay, {role}_viewer, {role}_operator;

-- Open rows are changed and, with their receipt, deleted; never made.
grant update (available_at, first_attempt_at, attempts, state, waited), delete
    on {schema}.deliveries to {role}_relay;
grant insert on {schema}.attempts, {schema}.attempt_finishes, {schema}.attempt_exceptions,
    {schema}.receipt_batches, {schema}.duplicate_receipts to {role}_relay;
grant insert, delete on {schema}.open_attempts to {role}_relay;
grant insert, update on {schema}.quarantine, {schema}.findings, {schema}.sessions to {role}_relay;
grant update (session_id, since) on {schema}.lanes to {role}_relay;
grant insert, update, delete on {schema}.breakers, {schema}.sleepers to {role}_relay;
grant insert, update on {schema}.suspensions to {role}_relay;
grant execute on function
    {schema}.fence(uuid, timestamptz), {schema}.expect_rows(bigint, bigint, text)
    to {role}_relay;

grant insert on {schema}.destinations, {schema}.lanes, {schema}.event_types,
    {schema}.delivery_sets, {schema}.delivery_set_events, {schema}.delivery_set_members,
    {schema}.delivery_set_activations, {schema}.audit_log to {role}_operator;
grant insert, update on {schema}.event_types_current to {role}_operator;
grant delete on {schema}.suspensions to {role}_operator;
grant update (available_at, attempts, state, waited) on {schema}.deliveries to {role}_operator;
grant update (resolved_at, resolved_by) on {schema}.quarantine to {role}_operator;
grant update (resolved_at) on {schema}.findings to {role}_operator;
