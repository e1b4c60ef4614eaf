-- Services and rules: every version of each document, of which one is in force, unless its service or
-- rule was deleted. A number is never given again, so that deliveries may name a version.
CREATE TABLE redrive.gateway (
    kind       text NOT NULL,
    name       text NOT NULL,
    version    integer NOT NULL,
    service    text NOT NULL,
    document   text NOT NULL,
    is_current boolean NOT NULL,
    made_at    timestamptz NOT NULL,
    made_by    text NOT NULL,
    why        text NOT NULL,
    PRIMARY KEY (kind, name, version)
);
CREATE UNIQUE INDEX gateway_current ON redrive.gateway (kind, name) WHERE is_current;
CREATE INDEX gateway_of_service ON redrive.gateway (service, kind) WHERE is_current;
INSERT INTO redrive.counters (name, value) VALUES ('gateway_revision', 0);
-- The version of the rule that gave a delivery, such as orders@3.
ALTER TABLE redrive.deliveries ADD COLUMN rule text;
