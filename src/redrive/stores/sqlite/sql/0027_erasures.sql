-- Since when the payload of an event is erased; its document says so, too.
ALTER TABLE redrive_events ADD COLUMN erased_at INTEGER;
