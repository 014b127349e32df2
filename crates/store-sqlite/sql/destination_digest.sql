-- ?1 name, ?2 generation.
SELECT digest FROM postrider_destinations WHERE name = ?1 AND generation = ?2;
