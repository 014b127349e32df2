SELECT destination_id FROM postrider_destinations ORDER BY destination_id;
