-- How far each projection has read each partition of the log, and which worker reads for it.
-- types: which events it wants, as JSON; all of them if none is named. is_reset: its read model is
-- to be emptied together with the next batch.
CREATE TABLE redrive.checkpoints (
    projection    text NOT NULL,
    version       integer NOT NULL,
    log_partition integer NOT NULL,
    began_time    bigint NOT NULL,
    began_number  bigint NOT NULL,
    time          bigint NOT NULL,
    number        bigint NOT NULL,
    event         uuid,
    type          text,
    applied_at    timestamptz,
    count         bigint NOT NULL DEFAULT 0,
    worker        text,
    types         text NOT NULL DEFAULT '[]',
    is_reset      boolean NOT NULL DEFAULT false,
    token         bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (projection, version, log_partition)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
