-- The limits that a person has set above the declared ones, and until when. They are beside the gate's
-- document, which whoever does not know of them writes anew.
ALTER TABLE redrive.gates ADD COLUMN override text;
ALTER TABLE redrive.gates ADD COLUMN override_until timestamptz;
