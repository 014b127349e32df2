-- $1 actor, $2 reason, $3 action, $4 how many things changed, $5 which, $6 now.
insert into {schema}.audit_log (at, actor, reason, action, changed, subject)
values (coalesce($6::timestamptz, clock_timestamp()), $1::text, $2::text, $3::text, $4::bigint, $5::text)
