SELECT version, checksum FROM postrider_migrations ORDER BY version;
