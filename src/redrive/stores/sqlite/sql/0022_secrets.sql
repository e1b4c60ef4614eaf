-- Secrets, each encrypted by a key that the store never sees. The document says everything else of it.
CREATE TABLE redrive_secrets (
    name     TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    sealed   BLOB NOT NULL
) WITHOUT ROWID;
