-- ?1 version, ?2 digest, ?3 canonical.
INSERT INTO postrider_delivery_sets (version, digest, canonical) VALUES (?1, ?2, ?3);
