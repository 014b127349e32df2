-- The bounds of an append in a transaction of its own.
set local statement_timeout = {timeout_ms};
set local lock_timeout = {timeout_ms}
