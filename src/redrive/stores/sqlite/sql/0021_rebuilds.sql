-- rebuild: how a version is made anew from the log, as JSON; none if it never was.
ALTER TABLE redrive_checkpoints ADD COLUMN rebuild TEXT;
-- Payloads that a person gave to events that a projection could not apply: a rebuild uses them again.
CREATE TABLE redrive_projection_edits (
    projection TEXT NOT NULL,
    position   INTEGER NOT NULL,
    payload    TEXT NOT NULL,
    edits      TEXT NOT NULL,
    PRIMARY KEY (projection, position)
) WITHOUT ROWID;
