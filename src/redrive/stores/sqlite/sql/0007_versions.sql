-- How far each key is, and which event of its key each one is. A key is never forgotten: its
-- count goes on when its events have gone.
CREATE TABLE redrive_keys (
    key     TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;
ALTER TABLE redrive_events ADD COLUMN version INTEGER;
UPDATE redrive_events SET version = numbered.version FROM (
    SELECT position, row_number() OVER (PARTITION BY key ORDER BY position) AS version
    FROM redrive_events WHERE key IS NOT NULL
) AS numbered WHERE redrive_events.position = numbered.position;
INSERT INTO redrive_keys (key, version)
SELECT key, count(*) FROM redrive_events WHERE key IS NOT NULL GROUP BY key;
