-- Which declaration of a destination is in force, and which ones were seen. The document of a
-- destination beside it is what everybody goes by, code of the last release included.
CREATE TABLE redrive_standings (
    destination INTEGER PRIMARY KEY REFERENCES redrive_destinations (id),
    document    TEXT NOT NULL
);

-- What workers declare: digests by the names of destinations. Workers of one release share a row.
CREATE TABLE redrive_releases (
    id       TEXT PRIMARY KEY,
    document TEXT NOT NULL
) WITHOUT ROWID;
ALTER TABLE redrive_workers ADD COLUMN release TEXT;
