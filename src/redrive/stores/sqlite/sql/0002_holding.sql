-- What was sent and answered in the last failed try of a delivery. A table of its own: such a
-- document may have 64 kB, and a claim rewrites the whole row of a delivery.
CREATE TABLE redrive_exchanges (
    delivery INTEGER PRIMARY KEY,
    document TEXT NOT NULL
);

-- Whoever removes a delivery, its exchange goes with it.
CREATE TRIGGER redrive_delivery_removed AFTER DELETE ON redrive_deliveries
BEGIN
    DELETE FROM redrive_exchanges WHERE delivery = old.id;
END;

-- The destinations and generations that a worker claims, as it has told.
CREATE TABLE redrive_serving (
    worker   TEXT PRIMARY KEY,
    document TEXT NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER redrive_worker_forgotten AFTER DELETE ON redrive_workers
BEGIN
    DELETE FROM redrive_serving WHERE worker = old.id;
END;
