-- Events that are not to be stored again for a while: under which unique key, and until when.
CREATE TABLE redrive.uniques (
    source text NOT NULL,
    key    text NOT NULL,
    event  uuid NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (source, key)
);
CREATE INDEX uniques_until ON redrive.uniques (until);
