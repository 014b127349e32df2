SELECT s.version, s.canonical
FROM postrider_delivery_set_activations AS a
JOIN postrider_delivery_sets AS s USING (version)
ORDER BY a.activation_id DESC
LIMIT 1;
