"""Who may, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.access import Token
from redrive.model.audit import Actor
from redrive.store import KeptToken, TokenTerms
from redrive.stores.access import named_token, new_token
from redrive.stores.memory.tables import Tables

__all__ = ["MemoryAccess"]


class MemoryAccess(Tables):
    """`Access` over the tables."""

    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        with self._lock:
            if terms.id in self._access_tokens:
                return None
            now = self._clock.now()
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
