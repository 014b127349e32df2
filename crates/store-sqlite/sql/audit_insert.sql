-- ?1 now, ?2 action, ?3 actor, ?4 reason, ?5 how many things changed.
INSERT INTO postrider_audit_log (at, action, actor, reason, changed) VALUES (?1, ?2, ?3, ?4, ?5);
