-- ?1 version, ?2 now.
INSERT INTO postrider_delivery_set_activations (version, activated_at) VALUES (?1, ?2);
