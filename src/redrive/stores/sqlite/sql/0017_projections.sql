-- How far each projection has read each partition of the log, and which worker reads for it.
-- types: which events it wants, as JSON; all of them if none is named. is_reset: its read model is
-- to be emptied together with the next batch.
CREATE TABLE redrive_checkpoints (
    projection    TEXT NOT NULL,
    version       INTEGER NOT NULL,
    log_partition INTEGER NOT NULL,
    began_time    INTEGER NOT NULL,
    began_number  INTEGER NOT NULL,
    time          INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    event         TEXT,
    type          TEXT,
    applied_at    INTEGER,
    count         INTEGER NOT NULL DEFAULT 0,
    worker        TEXT,
    types         TEXT NOT NULL DEFAULT '[]',
    is_reset      INTEGER NOT NULL DEFAULT 0,
    token         INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (projection, version, log_partition)
) WITHOUT ROWID;
