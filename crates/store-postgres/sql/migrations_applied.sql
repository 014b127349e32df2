select version, checksum from {schema}.schema_migrations order by version
