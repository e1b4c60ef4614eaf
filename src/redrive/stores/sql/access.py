"""Who may: tokens and users are rows with a document and a digest, sessions belong to users."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.model.access import Grant, LoginSession, Token, User
from redrive.model.audit import Actor
from redrive.store import TOKENS_KEPT, KeptSession, KeptToken, KeptUser, TokenTerms
from redrive.stores.access import (
    named_token,
    named_user,
    new_session,
    new_token,
    new_user,
    public_id,
)
from redrive.stores.codec import json_text
from redrive.stores.sql.audit import record
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing

__all__ = ["AccessRole"]

_MICROSECOND = timedelta(microseconds=1)

_ADD = """
INSERT INTO redrive.access_tokens (id, digest, document, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING id
"""
_ALL = """
SELECT document, used_at FROM redrive.access_tokens ORDER BY created_at DESC, id COLLATE "C"
"""
_OLD = "SELECT document, used_at FROM redrive.access_tokens WHERE created_at <= $1"
_DROP = "DELETE FROM redrive.access_tokens WHERE id = $1"
_FIND = f"""
SELECT t.document, t.used_at, t.digest, present.now
FROM {PRESENT} CROSS JOIN redrive.access_tokens t WHERE t.id = $2
"""
_LOCK = "SELECT document, used_at FROM redrive.access_tokens WHERE id = $1 FOR UPDATE"
_KEEP = "UPDATE redrive.access_tokens SET document = $2 WHERE id = $1"
_USE = "UPDATE redrive.access_tokens SET used_at = $2 WHERE id = $1"

_ADD_USER = """
INSERT INTO redrive.users (name, document, password) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING name
"""
_USERS = 'SELECT document FROM redrive.users ORDER BY name COLLATE "C"'
_USER = "SELECT document, password FROM redrive.users WHERE name = $1"
_LOCK_USER = "SELECT document FROM redrive.users WHERE name = $1 FOR UPDATE"
_KEEP_USER = "UPDATE redrive.users SET document = $2, password = $3 WHERE name = $1"
_RENEW = "UPDATE redrive.users SET password = $3 WHERE name = $1 AND password = $2"
_REMOVE_USER = "DELETE FROM redrive.users WHERE name = $1"
_END_SESSIONS = "DELETE FROM redrive.sessions WHERE user_name = $1"

_TRY = """
INSERT INTO redrive.login_attempts AS l (place, number, since) VALUES ($1, 1, $2)
ON CONFLICT (place) DO UPDATE SET
    number = CASE WHEN l.since <= $3 THEN 1 WHEN l.number < $4 THEN l.number + 1 ELSE $4 + 1 END,
    since = CASE WHEN l.since <= $3 THEN excluded.since ELSE l.since END
RETURNING number, since
"""
_FORGET = "DELETE FROM redrive.login_attempts WHERE place = $1"

_OPEN = """
INSERT INTO redrive.sessions (id, user_name, opened_at, seen_at, idle, ends_at)
VALUES ($1, $2, $3, $3, $4, $5)
"""
_CLEAR = """
DELETE FROM redrive.sessions WHERE id IN (
    SELECT id FROM redrive.sessions WHERE ends_at <= $1 ORDER BY ends_at LIMIT 100
)
"""
_SESSION = f"""
SELECT u.document, s.opened_at, s.seen_at, s.idle, s.ends_at, present.now
FROM {PRESENT} CROSS JOIN redrive.sessions s JOIN redrive.users u ON u.name = s.user_name
WHERE s.id = $2
"""
_SEE = "UPDATE redrive.sessions SET seen_at = $2 WHERE id = $1"
_CLOSE = "DELETE FROM redrive.sessions WHERE id = $1 RETURNING user_name"

_tokens = msgspec.json.Decoder(Token)
_users = msgspec.json.Decoder(User)


class AccessRole(SqlStore):
    """`Access`."""

    @writing()
    async def add_token(self, session: Session, terms: TokenTerms, *, actor: Actor) -> Token | None:
        token = new_token(terms, actor, session.now)
        values = token.id, terms.digest, json_text(token), session.now
        if await session.value(_ADD, *values) is None:
            return None
        await _forget_tokens(session)
        await record(session, "create_token", (), actor, count=1, detail=named_token(token))
        return token

    @reading
    async def tokens(self, session: Session) -> Sequence[Token]:
        return [_token(*row) for row in await session.fetch(_ALL)]

    async def find_token(self, token_id: str) -> KeptToken | None:
        for document, used_at, digest, now in await self._query(_FIND, token_id):
            return KeptToken(token=_token(document, used_at), digest=digest, now=instant(now))
        return None

    @writing()
    async def use_token(self, session: Session, token_id: str) -> None:
        await session.fetch(_USE, token_id, session.now)

    @writing()
    async def revoke_token(self, session: Session, token_id: str, *, actor: Actor) -> bool | None:
        rows = await session.fetch(_LOCK, token_id)
        if not rows:
            return None
        token = _token(rows[0][0], None)
        if token.revoked_at is not None:
            return False
        after = msgspec.structs.replace(token, revoked_at=session.now)
        await session.fetch(_KEEP, token_id, json_text(after))
        await record(session, "revoke_token", (), actor, count=1, detail=named_token(token))
        return True

    @writing()
    async def add_user(
        self, session: Session, name: str, grant: Grant, password: str, *, actor: Actor
    ) -> User | None:
        user = new_user(name, grant, actor, session.now)
        if await session.value(_ADD_USER, name, json_text(user), password) is None:
            return None
        await record(session, "add_user", (), actor, count=1, detail=named_user(user))
        return user

    @reading
    async def users(self, session: Session) -> Sequence[User]:
        return [_users.decode(document) for (document,) in await session.fetch(_USERS)]

    @reading
    async def find_user(self, session: Session, name: str) -> KeptUser | None:
        for document, password in await session.fetch(_USER, name):
            return KeptUser(user=_users.decode(document), password=password)
        return None

    @writing()
    async def set_password(
        self, session: Session, name: str, password: str, *, actor: Actor
    ) -> bool:
        user = await _locked(session, name)
        if user is None:
            return False
        after = msgspec.structs.replace(user, password_changed_at=session.now)
        await session.fetch(_KEEP_USER, name, json_text(after), password)
        await session.fetch(_END_SESSIONS, name)
        await record(session, "change_password", (), actor, count=1, detail=name)
        return True

    @writing()
    async def renew_password(self, session: Session, kept: KeptUser, password: str) -> None:
        await session.fetch(_RENEW, kept.user.name, kept.password, password)

    @writing()
    async def remove_user(self, session: Session, name: str, *, actor: Actor) -> bool:
        user = await _locked(session, name)
        if user is None:
            return False
        await session.fetch(_REMOVE_USER, name)
        await session.fetch(_END_SESSIONS, name)
        await record(session, "remove_user", (), actor, count=1, detail=named_user(user))
        return True

    @writing()
    async def count_login(
        self, session: Session, place: int, *, most: int, within: timedelta
    ) -> datetime | None:
        values = place, session.now, session.now - within, most
        [(number, since)] = await session.fetch(_TRY, *values)
        until: datetime = instant(since) + within
        return None if number <= most else until

    @writing()
    async def forget_logins(self, session: Session, place: int) -> None:
        await session.fetch(_FORGET, place)

    @writing()
    async def open_session(
        self, session: Session, session_id: str, user: User, *, idle: timedelta, lasts: timedelta
    ) -> LoginSession | None:
        now = session.now
        if await _locked(session, user.name) != user:
            return None
        await session.fetch(_CLEAR, now)
        await session.fetch(_OPEN, session_id, user.name, now, idle // _MICROSECOND, now + lasts)
        opened = new_session(session_id, user, now, idle=idle, lasts=lasts)
        await record(session, "log_in", (), Actor(opened.by), count=1, detail=user.name)
        return opened

    async def find_session(self, session_id: str) -> KeptSession | None:
        for document, *row, idle, ends_at, now in await self._query(_SESSION, session_id):
            opened_at, seen_at = map(instant, row)
            found = LoginSession(
                id=public_id(session_id),
                user=_users.decode(document),
                opened_at=opened_at,
                seen_at=seen_at,
                idle=idle * _MICROSECOND,
                ends_at=instant(ends_at),
            )
            return KeptSession(session=found, now=instant(now))
        return None

    @writing()
    async def see_session(self, session: Session, session_id: str) -> None:
        await session.fetch(_SEE, session_id, session.now)

    @writing()
    async def close_session(self, session: Session, session_id: str) -> bool:
        name = await session.value(_CLOSE, session_id)
        if name is None:
            return False
        by = f"user:{name}:{public_id(session_id)}"
        await record(session, "log_out", (), Actor(by), count=1, detail=name)
        return True


async def _forget_tokens(session: Session) -> None:
    """Remove tokens that ended long ago; none of them is younger than that."""
    before = session.now - TOKENS_KEPT
    for document, used_at in await session.fetch(_OLD, before):
        token = _token(document, used_at)
        if token.had_ended(before):
            await session.fetch(_DROP, token.id)


async def _locked(session: Session, name: str) -> User | None:
    document = await session.value(_LOCK_USER, name)
    return None if document is None else _users.decode(document)


def _token(document: str, used_at: Any) -> Token:  # noqa: ANN401 - an instant of either database
    token = _tokens.decode(document)
    return msgspec.structs.replace(token, last_used_at=instant(used_at))
