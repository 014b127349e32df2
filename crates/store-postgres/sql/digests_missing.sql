-- $1 digests. The number, from 1, of the first that no destination has.
select n from unnest($1::bytea[]) with ordinality as g(digest, n)
where not exists (select from {schema}.destinations t where t.digest = g.digest)
order by n
limit 1
