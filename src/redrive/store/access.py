"""What a store promises about who may: tokens are kept without their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.access import Grant, LoginSession, Token, User
from redrive.model.audit import Actor

__all__ = ["TOKENS_KEPT", "Access", "KeptSession", "KeptToken", "KeptUser", "TokenTerms"]


TOKENS_KEPT = timedelta(days=400)
"""How long a token stays on record that has ended: what was done with it is in the audit log."""


class TokenTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A token to be kept: its public id, and the digest by which its secret is known again."""

    id: str
    digest: str
    name: str
    grant: Grant
    lasts: timedelta | None = None


class KeptToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, the digest of its secret, and the present by the store's clock."""

    token: Token
    digest: str
    now: datetime


class KeptUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user, and what is kept of the password."""

    user: User
    password: str


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session, and the present by the store's clock."""

    session: LoginSession
    now: datetime


class Access(Protocol):
    """Who may. A secret is never given to a store, and each change leaves an audit entry."""

    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        """Keep a token, which expires as long after the present as it lasts.

        `None`, and nothing has happened, if there is one with this id. Tokens that ended more than
        `TOKENS_KEPT` ago are forgotten.
        """

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens, also those that have ended, the latest first."""

    async def find_token(self, token_id: str) -> KeptToken | None:
        """Return a token, whether it has ended or not."""

    async def use_token(self, token_id: str) -> None:
        """Remember that it was used just now."""

    async def revoke_token(self, token_id: str, *, actor: Actor) -> bool | None:
        """End a token for good; tells whether it was not revoked before. `None` if there is none.

        Whoever asks for it from then on finds it revoked.
        """

    async def add_user(
        self, name: str, grant: Grant, password: str, *, actor: Actor
    ) -> User | None:
        """Keep a user with what was made of the password; `None` if the name is taken."""

    async def users(self) -> Sequence[User]:
        """Return all users, by name."""

    async def find_user(self, name: str) -> KeptUser | None:
        """Return a user."""

    async def set_password(self, name: str, password: str, *, actor: Actor) -> bool:
        """Change a password and end all sessions of the user; tells whether there is one."""

    async def renew_password(self, kept: KeptUser, password: str) -> None:
        """Keep the same password otherwise, unless it was changed meanwhile."""

    async def remove_user(self, name: str, *, actor: Actor) -> bool:
        """Remove a user and end all their sessions; tells whether there was one."""

    async def count_login(self, place: int, *, most: int, within: timedelta) -> datetime | None:
        """Count that somebody tries to log in, before anybody knows how that ends.

        Returns until when they have to wait, without counting, if `most` have tried since the
        first of them, `within` that time. Of those who try at once no more than that pass.
        """

    async def forget_logins(self, place: int) -> None:
        """Begin to count anew, because somebody has logged in."""

    async def open_session(
        self, session_id: str, user: User, *, idle: timedelta, lasts: timedelta
    ) -> LoginSession | None:
        """Begin a session, with an audit entry.

        `None`, and nothing has happened, if the user was removed or the password changed since
        `user` was read.
        """

    async def find_session(self, session_id: str) -> KeptSession | None:
        """Return a session that nobody has closed, whether it has run out or not."""

    async def see_session(self, session_id: str) -> None:
        """Remember that something was seen of it just now."""

    async def close_session(self, session_id: str) -> bool:
        """End a session, with an audit entry; tells whether there was one."""
