-- payload: what a person gave it instead of its event's. replay: the replay that sent it last.
ALTER TABLE redrive_deliveries ADD COLUMN replay INTEGER;
ALTER TABLE redrive_deliveries ADD COLUMN auto_replays INTEGER NOT NULL DEFAULT 0;
ALTER TABLE redrive_deliveries ADD COLUMN payload TEXT;
ALTER TABLE redrive_deliveries ADD COLUMN edits TEXT;

-- The document is the whole replay; the columns beside it are what is counted in it or asked for.
CREATE TABLE redrive_replays (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    state     TEXT NOT NULL,
    selected  INTEGER NOT NULL,
    sent      INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    failed    INTEGER NOT NULL DEFAULT 0,
    skipped   INTEGER NOT NULL DEFAULT 0,
    document  TEXT NOT NULL
);
CREATE INDEX redrive_running_replays ON redrive_replays (id)
    WHERE state IN ('running', 'paused');

-- The letters that had no turn yet; one whose token differs was sent by somebody else meanwhile.
CREATE TABLE redrive_replay_items (
    replay   INTEGER NOT NULL REFERENCES redrive_replays (id),
    delivery INTEGER NOT NULL,
    token    INTEGER NOT NULL,
    PRIMARY KEY (replay, delivery)
) WITHOUT ROWID;

CREATE TABLE redrive_schedules (
    destination INTEGER PRIMARY KEY REFERENCES redrive_destinations (id),
    since       INTEGER NOT NULL
);

CREATE INDEX redrive_replayed ON redrive_deliveries (replay, is_behind, destination, lane)
    WHERE replay IS NOT NULL AND status = 0;

-- However a delivery is settled, or removed before it is, the replay that sent it counts it in the same transaction.
CREATE TRIGGER redrive_count_delivered AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 2 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET delivered = delivered + 1 WHERE id = new.replay;
END;
CREATE TRIGGER redrive_count_failed AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 3 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET failed = failed + 1 WHERE id = new.replay;
END;
CREATE TRIGGER redrive_count_gone AFTER DELETE ON redrive_deliveries
WHEN old.status < 2 AND old.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET failed = failed + 1 WHERE id = old.replay;
END;
