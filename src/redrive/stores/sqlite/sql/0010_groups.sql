-- Where the letters of a group went when fingerprints were made in another way: whoever wrote the
-- old one down still finds them.
CREATE TABLE redrive_group_aliases (
    old TEXT NOT NULL,
    new TEXT NOT NULL,
    at  INTEGER NOT NULL,
    PRIMARY KEY (old, new)
) WITHOUT ROWID;

-- Ids of groups tell how their fingerprint was made by how they begin; the outdated come first.
CREATE INDEX redrive_grouped ON redrive_deliveries (group_id) WHERE status = 3;
