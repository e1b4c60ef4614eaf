"""What a store promises about who may: tokens are kept without their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.access import Grant, Token
from redrive.model.audit import Actor

__all__ = ["Access", "KeptToken", "TokenTerms"]


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


class Access(Protocol):
    """Who may. A secret is never given to a store, and each change leaves an audit entry."""

    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        """Keep a token, which expires as long after the present as it lasts.

        `None`, and nothing has happened, if there is one with this id.
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
