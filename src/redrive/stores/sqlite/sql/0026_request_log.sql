-- The last requests to destinations, as far as they are kept. A row is what a worker has written at
-- once, as JSON; counted: how many there were until then.
CREATE TABLE redrive_request_log (
    id          INTEGER PRIMARY KEY,
    destination INTEGER NOT NULL,
    counted     INTEGER NOT NULL,
    body        TEXT NOT NULL
);
CREATE INDEX redrive_request_log_by_destination ON redrive_request_log (destination, counted);
