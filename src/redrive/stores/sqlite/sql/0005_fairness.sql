-- The tenant comes before the priority, so that the next tenant is found without reading what the
-- one before it has queued.
DROP INDEX redrive_ready;
CREATE INDEX redrive_ready ON redrive_deliveries
    (destination, generation, kind, ifnull(tenant, ''), priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2;

-- For the same hop among what is not ready yet, when so much comes due at once that it is made
-- ready bit by bit.
CREATE INDEX redrive_waiting_tenants ON redrive_deliveries (destination, ifnull(tenant, ''), due)
    WHERE status = 0 AND is_ready = 0;

-- What is remembered of each tenant at a destination; '' are the events without one. Nothing is
-- written for destinations that have no tenants.
CREATE TABLE redrive_tenants (
    destination INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    served_at   INTEGER NOT NULL,
    round       INTEGER NOT NULL,
    processed   INTEGER NOT NULL,
    consecutive INTEGER NOT NULL,
    tokens      REAL,
    refilled_at INTEGER,
    PRIMARY KEY (destination, tenant)
) WITHOUT ROWID;

-- Tenants that a person stopped; destination 0 means all of them.
CREATE TABLE redrive_tenant_pauses (
    tenant      TEXT NOT NULL,
    destination INTEGER NOT NULL,
    by          TEXT NOT NULL,
    why         TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, destination)
) WITHOUT ROWID;

-- A dead letter that has left its lane is behind nobody.
UPDATE redrive_deliveries SET is_behind = 0 WHERE lane IS NULL AND is_behind = 1;
