-- The limits that a person has set above the declared ones, and until when. They are beside the gate's
-- document, which whoever does not know of them writes anew.
ALTER TABLE redrive.gates ADD COLUMN override text;
ALTER TABLE redrive.gates ADD COLUMN override_until timestamptz;

-- The tokens of rates that several destinations share, and which of them wait for some.
CREATE TABLE redrive.shared_rates (
    name     text PRIMARY KEY,
    document text NOT NULL
);
