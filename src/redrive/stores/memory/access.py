"""Who may, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.clock import Clock
from redrive.model.access import Grant, LoginSession, Token, User
from redrive.model.audit import Actor
from redrive.store import TOKENS_KEPT, KeptSession, KeptToken, KeptUser, TokenTerms
from redrive.stores.access import named_token, named_user, new_session, new_token, new_user
from redrive.stores.memory.tables import Tables

__all__ = ["MemoryAccess"]


class MemoryAccess(Tables):
    """`Access` over the tables."""

    def __init__(self, clock: Clock, history: int) -> None:
        super().__init__(clock, history)
        self._users: dict[str, KeptUser] = {}
        self._sessions: dict[str, LoginSession] = {}
        self._logins: dict[int, tuple[int, datetime]] = {}

    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        with self._lock:
            if terms.id in self._access_tokens:
                return None
            now = self._clock.now()
            self._access_tokens = {
                one: kept
                for one, kept in self._access_tokens.items()
                if not kept.token.had_ended(now - TOKENS_KEPT)
            }
            token = new_token(terms, actor, now)
            self._access_tokens[terms.id] = KeptToken(token=token, digest=terms.digest, now=now)
            self._note("create_token", actor, now=now, count=1, detail=named_token(token))
            return token

    async def tokens(self) -> Sequence[Token]:
        with self._lock:
            found = sorted(
                (one.token for one in self._access_tokens.values()), key=lambda one: one.id
            )
            return sorted(found, key=lambda one: one.created_at, reverse=True)

    async def find_token(self, token_id: str) -> KeptToken | None:
        with self._lock:
            kept = self._access_tokens.get(token_id)
            return kept and msgspec.structs.replace(kept, now=self._clock.now())

    async def use_token(self, token_id: str) -> None:
        with self._lock:
            if kept := self._access_tokens.get(token_id):
                self._keep_token(
                    msgspec.structs.replace(kept.token, last_used_at=self._clock.now())
                )

    async def revoke_token(self, token_id: str, *, actor: Actor) -> bool | None:
        with self._lock:
            kept, now = self._access_tokens.get(token_id), self._clock.now()
            if kept is None:
                return None
            if kept.token.revoked_at is not None:
                return False
            self._keep_token(msgspec.structs.replace(kept.token, revoked_at=now))
            detail = named_token(kept.token)
            self._note("revoke_token", actor, now=now, count=1, detail=detail)
            return True

    def _keep_token(self, token: Token) -> None:
        kept = self._access_tokens[token.id]
        self._access_tokens[token.id] = msgspec.structs.replace(kept, token=token)

    async def add_user(
        self, name: str, grant: Grant, password: str, *, actor: Actor
    ) -> User | None:
        with self._lock:
            if name in self._users:
                return None
            now = self._clock.now()
            user = new_user(name, grant, actor, now)
            self._users[name] = KeptUser(user=user, password=password)
            self._note("add_user", actor, now=now, count=1, detail=named_user(user))
            return user

    async def users(self) -> Sequence[User]:
        with self._lock:
            return [kept.user for _, kept in sorted(self._users.items())]

    async def find_user(self, name: str) -> KeptUser | None:
        with self._lock:
            return self._users.get(name)

    async def set_password(self, name: str, password: str, *, actor: Actor) -> bool:
        with self._lock:
            kept, now = self._users.get(name), self._clock.now()
            if kept is None:
                return False
            user = msgspec.structs.replace(kept.user, password_changed_at=now)
            self._users[name] = KeptUser(user=user, password=password)
            self._end_sessions(name)
            self._note("change_password", actor, now=now, count=1, detail=name)
            return True

    async def renew_password(self, kept: KeptUser, password: str) -> None:
        with self._lock:
            if self._users.get(kept.user.name) == kept:
                self._users[kept.user.name] = KeptUser(user=kept.user, password=password)

    async def remove_user(self, name: str, *, actor: Actor) -> bool:
        with self._lock:
            kept, now = self._users.pop(name, None), self._clock.now()
            if kept is None:
                return False
            self._end_sessions(name)
            self._note("remove_user", actor, now=now, count=1, detail=named_user(kept.user))
            return True

    async def count_login(self, place: int, *, most: int, within: timedelta) -> datetime | None:
        with self._lock:
            now = self._clock.now()
            number, since = self._logins.get(place, (0, now))
            if now - since >= within:
                number, since = 0, now
            if number >= most:
                return since + within
            self._logins[place] = number + 1, since
            return None

    async def forget_logins(self, place: int) -> None:
        with self._lock:
            self._logins.pop(place, None)

    async def open_session(
        self, session_id: str, user: User, *, idle: timedelta, lasts: timedelta
    ) -> LoginSession | None:
        with self._lock:
            kept, now = self._users.get(user.name), self._clock.now()
            if kept is None or kept.user != user:
                return None
            self._sessions = {
                name: one for name, one in self._sessions.items() if now < one.ends_at
            }
            opened = new_session(session_id, user, now, idle=idle, lasts=lasts)
            self._sessions[session_id] = opened
            self._note("log_in", Actor(opened.by), now=now, count=1, detail=user.name)
            return opened

    async def find_session(self, session_id: str) -> KeptSession | None:
        with self._lock:
            found = self._sessions.get(session_id)
            if found is None:
                return None
            return KeptSession(session=found, now=self._clock.now())

    async def see_session(self, session_id: str) -> None:
        with self._lock:
            if found := self._sessions.get(session_id):
                seen = msgspec.structs.replace(found, seen_at=self._clock.now())
                self._sessions[session_id] = seen

    async def close_session(self, session_id: str) -> bool:
        with self._lock:
            found = self._sessions.pop(session_id, None)
            if found is None:
                return False
            now = self._clock.now()
            self._note("log_out", Actor(found.by), now=now, count=1, detail=found.user.name)
            return True

    def _end_sessions(self, name: str) -> None:
        self._sessions = {
            one: session for one, session in self._sessions.items() if session.user.name != name
        }
