-- $1 code, $2 destination, $3 position, $4 detail, $5 now. The same thing seen again is one
-- finding.
insert into {schema}.findings as f (code, destination_id, position, detail, detail_digest, first_seen, last_seen)
select $1::text, $2::integer, $3::bigint, $4::text, sha256(convert_to($4::text, 'UTF8')), m.at, m.at
from (select coalesce($5::timestamptz, clock_timestamp()) as at) m
on conflict (code, coalesce(destination_id, 0), coalesce(position, 0), detail_digest)
    where resolved_at is null
do update set last_seen = greatest(f.last_seen, excluded.last_seen)
