-- The bounds of one call's transaction: of every wait, and of the plans. The set-based statements
-- are written for nested loops over the primary key and the partial indexes, and get them whatever
-- the statistics of a table that empties and fills say.
set local statement_timeout = {timeout_ms};
set local lock_timeout = {timeout_ms};
set local idle_in_transaction_session_timeout = {timeout_ms};
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_hashjoin = off;
set local enable_mergejoin = off;
set local max_parallel_workers_per_gather = 0;
set local jit = off
