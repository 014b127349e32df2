-- One apply at a time, until the transaction is over.
select pg_advisory_xact_lock(hashtextextended('postrider apply {schema}', 0))
