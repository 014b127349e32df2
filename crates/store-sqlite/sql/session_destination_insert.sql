-- ?1 session, ?2 destination.
INSERT INTO postrider_session_destinations (session_id, destination_id) VALUES (?1, ?2)
ON CONFLICT DO NOTHING;
