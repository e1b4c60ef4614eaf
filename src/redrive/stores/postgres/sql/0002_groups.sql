-- Where the letters of a group went when fingerprints were made in another way: whoever wrote the
-- old one down still finds them.
CREATE TABLE redrive.group_aliases (
    old text NOT NULL,
    new text NOT NULL,
    at  timestamptz NOT NULL,
    PRIMARY KEY (old, new)
);

-- Ids of groups tell how their fingerprint was made by how they begin; the outdated come first.
CREATE INDEX deliveries_grouped ON redrive.deliveries (group_id COLLATE "C") WHERE status = 3;
