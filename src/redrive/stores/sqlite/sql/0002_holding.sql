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

-- What a worker claims, as JSON lists; unknown for a worker that never said.
ALTER TABLE redrive_workers ADD COLUMN destinations TEXT;
ALTER TABLE redrive_workers ADD COLUMN generations TEXT;
