-- Secrets, each encrypted by a key that the store never sees. The document says everything else of it.
CREATE TABLE redrive.secrets (
    name     text PRIMARY KEY,
    document text NOT NULL,
    sealed   bytea NOT NULL
);
