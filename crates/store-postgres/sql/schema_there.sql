select to_regclass('{schema}.schema_migrations') is not null
