"""Secrets: each is a row with a document, and what it is encrypted to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.audit import Actor
from redrive.model.secret import Secret
from redrive.store import KeptSecret
from redrive.stores.codec import json_text
from redrive.stores.secrets import next_secret
from redrive.stores.sql.audit import record
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["SecretsRole"]

_ALL = 'SELECT document FROM redrive.secrets ORDER BY name COLLATE "C"'
_FIND = "SELECT document, sealed FROM redrive.secrets WHERE name = $1"
_LOCK = "SELECT document, sealed FROM redrive.secrets WHERE name = $1 FOR UPDATE"
_ADD = """
INSERT INTO redrive.secrets (name, document, sealed) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING name
"""
_KEEP = "UPDATE redrive.secrets SET document = $2, sealed = $3 WHERE name = $1"
_DROP = "DELETE FROM redrive.secrets WHERE name = $1 RETURNING name"

_secrets = msgspec.json.Decoder(Secret)


class SecretsRole(SqlStore):
    """`SealedSecrets`."""

    @writing()
    async def set_secret(
        self, session: Session, name: str, sealed: bytes, *, key_id: str, actor: Actor
    ) -> Secret:
        first = next_secret(None, name, key_id=key_id, actor=actor, now=session.now)
        new = first
        if await session.value(_ADD, name, json_text(first), sealed) is None:
            kept = await _found(session, _LOCK, name)
            before = None if kept is None else kept.secret
            new = next_secret(before, name, key_id=key_id, actor=actor, now=session.now)
            await session.fetch(_KEEP, name, json_text(new), sealed)
        await record(session, "set_secret", (), actor, count=1, detail=name)
        return new

    @reading
    async def secrets(self, session: Session) -> Sequence[Secret]:
        return [_secrets.decode(document) for (document,) in await session.fetch(_ALL)]

    @reading
    async def find_secret(self, session: Session, name: str) -> KeptSecret | None:
        return await _found(session, _FIND, name)

    @writing()
    async def reseal_secret(
        self, session: Session, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        name = kept.secret.name
        if await _found(session, _LOCK, name) != kept:
            return False
        secret = msgspec.structs.replace(kept.secret, key_id=key_id)
        await session.fetch(_KEEP, name, json_text(secret), sealed)
        await record(session, "rotate_secret", (), actor, count=1, detail=name)
        return True

    @writing()
    async def delete_secret(self, session: Session, name: str, *, actor: Actor) -> bool:
        if await session.value(_DROP, name) is None:
            return False
        await record(session, "delete_secret", (), actor, count=1, detail=name)
        return True


async def _found(session: Session, statement: str, name: str) -> KeptSecret | None:
    for document, sealed in await session.fetch(statement, name):
        return KeptSecret(secret=_secrets.decode(document), sealed=bytes(sealed))
    return None
