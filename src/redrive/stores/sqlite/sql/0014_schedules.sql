-- What is published by the clock: which declaration is in force, and up to where it has ticked.
-- In `redrive_schedules` is since when auto-replays count, which had that name before.
CREATE TABLE redrive_publishing_schedules (
    name     TEXT PRIMARY KEY,
    document TEXT NOT NULL
) WITHOUT ROWID;
