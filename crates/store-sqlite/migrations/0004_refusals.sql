-- A worker that must not send to a destination says so beside its breakers, and is not counted
-- among those who share its lanes.

ALTER TABLE postrider_breakers ADD COLUMN refused INTEGER NOT NULL DEFAULT 0
    CONSTRAINT refused_is_boolean CHECK (refused IN (0, 1));
