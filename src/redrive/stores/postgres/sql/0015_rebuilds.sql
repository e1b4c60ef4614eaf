-- rebuild: how a version is made anew from the log, as JSON; none if it never was.
ALTER TABLE redrive.checkpoints ADD COLUMN rebuild text;
-- Payloads that a person gave to events that a projection could not apply: a rebuild uses them again.
CREATE TABLE redrive.projection_edits (
    projection text NOT NULL,
    position   bigint NOT NULL,
    payload    text NOT NULL,
    edits      text NOT NULL,
    PRIMARY KEY (projection, position)
);
