-- The stored event of an id. ?1 event id.
SELECT position, envelope, envelope_digest FROM postrider_events WHERE event_id = ?1;
