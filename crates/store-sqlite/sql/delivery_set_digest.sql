-- ?1 version.
SELECT digest FROM postrider_delivery_sets WHERE version = ?1;
