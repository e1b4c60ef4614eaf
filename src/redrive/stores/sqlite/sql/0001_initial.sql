-- Counters that only ever grow; routes_version is what publishers route by.
CREATE TABLE redrive_counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO redrive_counters (name, value)
VALUES ('routes_version', 0), ('refused_settlements', 0), ('deleted', 0), ('unrouted', 0);

CREATE TABLE redrive_destinations (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT NOT NULL UNIQUE,
    document TEXT NOT NULL
);

-- What all workers share of a destination: its breaker, its buckets, its pause.
CREATE TABLE redrive_gates (
    destination INTEGER PRIMARY KEY REFERENCES redrive_destinations (id),
    document    TEXT NOT NULL
);

-- The log. The document is the whole event; the columns beside it are there to be searched.
CREATE TABLE redrive_events (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    type         TEXT NOT NULL,
    key          TEXT,
    destinations TEXT NOT NULL,
    document     TEXT NOT NULL
);

CREATE TABLE redrive_idempotency (
    source   TEXT NOT NULL,
    key      TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (source, key)
) WITHOUT ROWID;

-- status: 0 pending, 1 in flight, 2 delivered, 3 failed. kind: 0 first, 1 retry, 2 replay.
-- is_ready: the due time has come. is_behind: another delivery of its lane goes first.
-- What only failures fill comes last: a row without it stays short.
CREATE TABLE redrive_deliveries (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    position        INTEGER NOT NULL REFERENCES redrive_events (position),
    destination     INTEGER NOT NULL REFERENCES redrive_destinations (id),
    status          INTEGER NOT NULL DEFAULT 0,
    is_ready        INTEGER NOT NULL,
    is_behind       INTEGER NOT NULL DEFAULT 0,
    kind            INTEGER NOT NULL DEFAULT 0,
    priority        INTEGER NOT NULL,
    generation      TEXT NOT NULL,
    tenant          TEXT,
    lane            TEXT,
    due             INTEGER NOT NULL,
    deadline        INTEGER,
    enqueued_at     INTEGER NOT NULL,
    token           INTEGER NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    snoozes         INTEGER NOT NULL DEFAULT 0,
    crashes         INTEGER NOT NULL DEFAULT 0,
    is_alone        INTEGER NOT NULL DEFAULT 0,
    breaker_generation INTEGER NOT NULL DEFAULT 0,
    worker          TEXT,
    lease_until     INTEGER,
    settled_at      INTEGER,
    last_crash_at   INTEGER,
    first_failed_at INTEGER,
    last_failed_at  INTEGER,
    reason          TEXT,
    group_id        TEXT,
    fault           TEXT,
    log             TEXT,
    cycles          TEXT,
    resolution      TEXT
);

-- Each partial index holds only the rows its question is about, so that finished history and
-- dead letters cost a claim nothing.
CREATE INDEX redrive_ready ON redrive_deliveries (destination, generation, kind, priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2;
CREATE INDEX redrive_suspects ON redrive_deliveries (destination, generation, priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2;
CREATE INDEX redrive_waiting ON redrive_deliveries (due)
    WHERE status = 0 AND is_ready = 0;
CREATE INDEX redrive_deadlines ON redrive_deliveries (deadline)
    WHERE status = 0 AND deadline IS NOT NULL;
CREATE INDEX redrive_leases ON redrive_deliveries (lease_until)
    WHERE status = 1;
CREATE INDEX redrive_finished ON redrive_deliveries (settled_at, id)
    WHERE status = 2;
CREATE INDEX redrive_dead_letters ON redrive_deliveries (settled_at, id)
    WHERE status = 3;
CREATE INDEX redrive_groups ON redrive_deliveries (group_id, settled_at, id)
    WHERE status = 3 AND resolution IS NULL;
CREATE INDEX redrive_lanes ON redrive_deliveries (destination, lane, id)
    WHERE lane IS NOT NULL AND status <> 2 AND resolution IS NULL;
CREATE INDEX redrive_of_event ON redrive_deliveries (position);

CREATE TABLE redrive_workers (
    id      TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE redrive_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    by         TEXT NOT NULL,
    why        TEXT NOT NULL,
    action     TEXT NOT NULL,
    count      INTEGER NOT NULL,
    deliveries TEXT NOT NULL,
    detail     TEXT NOT NULL
);
