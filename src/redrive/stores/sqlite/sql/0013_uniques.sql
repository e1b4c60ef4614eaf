-- Events that are not to be stored again for a while: under which unique key, and until when.
CREATE TABLE redrive_uniques (
    source TEXT NOT NULL,
    key    TEXT NOT NULL,
    event  TEXT NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (source, key)
) WITHOUT ROWID;
CREATE INDEX redrive_uniques_until ON redrive_uniques (until);
