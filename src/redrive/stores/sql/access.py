"""Who may: a token is a row with a document, the digest of its secret, and when it was used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.model.access import Token
from redrive.model.audit import Actor
from redrive.store import KeptToken, TokenTerms
from redrive.stores.access import named_token, new_token
from redrive.stores.codec import json_text
from redrive.stores.sql.audit import record
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing

__all__ = ["AccessRole"]

_ADD = """
INSERT INTO redrive.access_tokens (id, digest, document, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING id
"""
_ALL = """
SELECT document, used_at FROM redrive.access_tokens ORDER BY created_at DESC, id COLLATE "C"
"""
_FIND = f"""
SELECT t.document, t.used_at, t.digest, present.now
FROM {PRESENT} CROSS JOIN redrive.access_tokens t WHERE t.id = $2
"""
_LOCK = "SELECT document, used_at FROM redrive.access_tokens WHERE id = $1 FOR UPDATE"
_KEEP = "UPDATE redrive.access_tokens SET document = $2 WHERE id = $1"
_USE = "UPDATE redrive.access_tokens SET used_at = $2 WHERE id = $1"

_tokens = msgspec.json.Decoder(Token)


class AccessRole(SqlStore):
    """`Access`."""

    @writing()
    async def add_token(self, session: Session, terms: TokenTerms, *, actor: Actor) -> Token | None:
        token = new_token(terms, actor, session.now)
        values = token.id, terms.digest, json_text(token), session.now
        if await session.value(_ADD, *values) is None:
            return None
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


def _token(document: str, used_at: Any) -> Token:  # noqa: ANN401 - an instant of either database
    token = _tokens.decode(document)
    return msgspec.structs.replace(token, last_used_at=instant(used_at))
