-- ?1 digest.
SELECT destination_id FROM postrider_destinations WHERE digest = ?1;
