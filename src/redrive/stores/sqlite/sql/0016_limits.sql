-- The limits that a person has set above the declared ones, and until when. They are beside the gate's
-- document, which whoever does not know of them writes anew.
ALTER TABLE redrive_gates ADD COLUMN override TEXT;
ALTER TABLE redrive_gates ADD COLUMN override_until INTEGER;

-- The tokens of rates that several destinations share, and which of them wait for some.
CREATE TABLE redrive_shared_rates (
    name     TEXT PRIMARY KEY,
    document TEXT NOT NULL
) WITHOUT ROWID;
