-- Versions of a projection stand beside each other, each under a name of its own. tables: those of
-- its read model, as JSON, by the names that readers use. served_at: when readers were given this
-- version; the latest one serves, and where there is none, the lowest version.
ALTER TABLE redrive_checkpoints ADD COLUMN tables TEXT NOT NULL DEFAULT '[]';
ALTER TABLE redrive_checkpoints ADD COLUMN served_at INTEGER;
