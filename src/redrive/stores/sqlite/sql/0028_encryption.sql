-- Whether payloads are encrypted, by which key, and how far what was kept before has come to that.
-- No row: they never were.
CREATE TABLE redrive_encryption (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    document TEXT NOT NULL
);
