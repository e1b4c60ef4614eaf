-- What is kept and for how long, and destinations that were removed.
ALTER TABLE redrive_destinations ADD COLUMN removed_at INTEGER;
ALTER TABLE redrive_destinations ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;

INSERT INTO redrive_counters (name, value)
VALUES ('exported', 0), ('pruned_events', 0), ('pruned_resolved', 0);

ALTER TABLE redrive_deliveries ADD COLUMN resolved_at INTEGER;
UPDATE redrive_deliveries SET resolved_at = unixepoch(resolution ->> 'at') * 1000000
WHERE status = 3 AND resolution IS NOT NULL;

-- Since when events have nothing more to do. An event without a delivery is always in here; one
-- that still has a delivery may be, because another of its deliveries has gone already.
CREATE TABLE redrive_idle (
    position INTEGER PRIMARY KEY,
    since    INTEGER NOT NULL
);
CREATE INDEX redrive_idle_since ON redrive_idle (since);
INSERT INTO redrive_idle (position, since)
SELECT e.position, unixepoch() * 1000000 FROM redrive_events e
WHERE NOT EXISTS (SELECT 1 FROM redrive_deliveries d WHERE d.position = e.position);

-- A key that outlives its event: since when that was idle, and enough of it to answer with.
ALTER TABLE redrive_idempotency ADD COLUMN since INTEGER;
ALTER TABLE redrive_idempotency ADD COLUMN remains TEXT;
CREATE INDEX redrive_remains ON redrive_idempotency (since) WHERE since IS NOT NULL;

-- Duties that one worker does for all.
CREATE TABLE redrive_watches (
    duty   TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX redrive_resolved ON redrive_deliveries (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX redrive_letters ON redrive_deliveries (destination, settled_at, id)
    WHERE status = 3 AND resolution IS NULL;
