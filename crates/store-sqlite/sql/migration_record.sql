-- ?1 version, ?2 checksum, ?3 now.
INSERT INTO postrider_migrations (version, checksum, applied_at) VALUES (?1, ?2, ?3);
