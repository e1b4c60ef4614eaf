-- What became of deliveries over time. Each row has the points of some destinations, packed: those
-- of a block, by a hash of their names. tier: how much time a point and a row stand for.
CREATE TABLE redrive_trends (
    id        INTEGER PRIMARY KEY,
    tier      INTEGER NOT NULL,
    block     INTEGER NOT NULL,
    starts_at INTEGER NOT NULL,
    body      BLOB NOT NULL
);
CREATE INDEX redrive_trends_by_block ON redrive_trends (block, starts_at);
CREATE INDEX redrive_trends_by_age ON redrive_trends (tier, starts_at);
