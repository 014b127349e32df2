-- ?1 destination.
DELETE FROM postrider_suspensions WHERE destination_id = ?1;
