-- The careful form of acknowledge: answers which rows were there, and in which state.
--
-- $1 destination, $2 positions, ascending.
delete from {schema}.deliveries d
using unnest($2::bigint[]) as given(position)
where d.destination_id = $1::integer and d.position = given.position
returning d.position, d.state, d.key_hash, d.waited
