-- The bounds of one question's transaction.
set transaction read only;
set local statement_timeout = {timeout_ms};
set local jit = off
