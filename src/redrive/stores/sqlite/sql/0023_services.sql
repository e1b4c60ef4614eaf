-- Services and rules: every version of each document, of which one is in force, unless its service or
-- rule was deleted. A number is never given again, so that deliveries may name a version.
CREATE TABLE redrive_gateway (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    service    TEXT NOT NULL,
    document   TEXT NOT NULL,
    is_current INTEGER NOT NULL,
    made_at    INTEGER NOT NULL,
    made_by    TEXT NOT NULL,
    why        TEXT NOT NULL,
    PRIMARY KEY (kind, name, version)
) WITHOUT ROWID;
CREATE UNIQUE INDEX redrive_gateway_current ON redrive_gateway (kind, name) WHERE is_current;
CREATE INDEX redrive_gateway_of_service ON redrive_gateway (service, kind) WHERE is_current;
INSERT INTO redrive_counters (name, value) VALUES ('gateway_revision', 0);
-- The version of the rule that gave a delivery, such as orders@3.
ALTER TABLE redrive_deliveries ADD COLUMN rule TEXT;
