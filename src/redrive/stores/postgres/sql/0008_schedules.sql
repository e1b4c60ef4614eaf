-- What is published by the clock: which declaration is in force, and up to where it has ticked.
-- In `redrive.schedules` is since when auto-replays count, which had that name before.
CREATE TABLE redrive.publishing_schedules (
    name     text PRIMARY KEY,
    document text NOT NULL
);
