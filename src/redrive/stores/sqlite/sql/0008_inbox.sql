-- Which effects were applied: what a transactional handler did is committed with its record here.
-- An event without an idempotency key has its id for a source and '' for a key, which no key is.
-- since: of a record whose event has gone, since when that was idle.
CREATE TABLE redrive_inbox (
    handler TEXT NOT NULL,
    source  TEXT NOT NULL,
    key     TEXT NOT NULL,
    event   TEXT NOT NULL,
    since   INTEGER,
    PRIMARY KEY (handler, source, key)
) WITHOUT ROWID;
CREATE INDEX redrive_inbox_of_event ON redrive_inbox (event);
CREATE INDEX redrive_inbox_remains ON redrive_inbox (since) WHERE since IS NOT NULL;
