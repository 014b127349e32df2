-- The active delivery set.
select s.canonical, s.delivery_set_id
from {schema}.delivery_set_activations a
join {schema}.delivery_sets s using (delivery_set_id)
order by a.activation_id desc
limit 1
