-- Who may. No secret is kept: of a token and of a session the SHA-256 of what is random in it, of a
-- password what scrypt made of it, with the salt and the costs.
CREATE TABLE redrive_access_tokens (
    id         TEXT PRIMARY KEY,
    digest     TEXT NOT NULL,
    document   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER
) WITHOUT ROWID;
CREATE TABLE redrive_users (
    name     TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    password TEXT NOT NULL
) WITHOUT ROWID;
-- id: the digest. idle: after how many microseconds without a sign of life it ends.
CREATE TABLE redrive_sessions (
    id        TEXT PRIMARY KEY,
    user_name TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL,
    idle      INTEGER NOT NULL,
    ends_at   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX redrive_sessions_of_user ON redrive_sessions (user_name);
CREATE INDEX redrive_sessions_ends ON redrive_sessions (ends_at);
-- How often somebody tried to log in since when. Names share a fixed number of places, so that who
-- tries many makes no table grow.
CREATE TABLE redrive_login_attempts (
    place  INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    since  INTEGER NOT NULL
) WITHOUT ROWID;
