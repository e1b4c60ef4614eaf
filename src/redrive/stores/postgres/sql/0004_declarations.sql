-- Which declaration of a destination is in force, and which ones were seen. The document of a
-- destination beside it is what everybody goes by, code of the last release included.
CREATE TABLE redrive.standings (
    destination integer PRIMARY KEY REFERENCES redrive.destinations (id),
    document    text NOT NULL
);

-- What workers declare: digests by the names of destinations. Workers of one release share a row.
CREATE TABLE redrive.releases (
    id       text PRIMARY KEY,
    document text NOT NULL
);
ALTER TABLE redrive.workers ADD COLUMN release text;
