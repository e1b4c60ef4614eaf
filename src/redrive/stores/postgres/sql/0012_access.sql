-- Who may. No secret is kept: of a token and of a session the SHA-256 of what is random in it, of a
-- password what scrypt made of it, with the salt and the costs.
CREATE TABLE redrive.access_tokens (
    id         text PRIMARY KEY,
    digest     text NOT NULL,
    document   text NOT NULL,
    created_at timestamptz NOT NULL,
    used_at    timestamptz
);
CREATE TABLE redrive.users (
    name     text PRIMARY KEY,
    document text NOT NULL,
    password text NOT NULL
);
-- id: the digest. idle: after how many microseconds without a sign of life it ends.
CREATE TABLE redrive.sessions (
    id        text PRIMARY KEY,
    user_name text NOT NULL,
    opened_at timestamptz NOT NULL,
    seen_at   timestamptz NOT NULL,
    idle      bigint NOT NULL,
    ends_at   timestamptz NOT NULL
);
CREATE INDEX sessions_of_user ON redrive.sessions (user_name);
CREATE INDEX sessions_ends ON redrive.sessions (ends_at);
-- How often somebody tried to log in since when. Names share a fixed number of places, so that who
-- tries many makes no table grow.
CREATE TABLE redrive.login_attempts (
    place  integer PRIMARY KEY,
    number integer NOT NULL,
    since  timestamptz NOT NULL
);
