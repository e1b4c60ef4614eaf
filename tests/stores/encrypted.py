"""Stores that are encrypted from the moment they are opened first."""

from __future__ import annotations

from datetime import UTC, datetime

from redrive.clock import SystemEntropy
from redrive.model.encryption import Encryption
from redrive.sealing import KeyRing, Vault
from redrive.stores.codec import json_text
from redrive.stores.postgres import PostgresStore
from redrive.stores.sealed import KeptEncryption
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore
from redrive.stores.sqlite import SqliteStore

__all__ = ["KEYS", "EncryptedPostgres", "EncryptedSqlite", "a_vault"]

_KEEP = "INSERT INTO redrive.encryption (id, document) VALUES (1, $1) ON CONFLICT DO NOTHING"
KEYS = KeyRing({f"k{number}": bytes([number]) * 32 for number in (1, 2, 3)})


def a_vault(*ids: str) -> Vault:
    """Return a vault with some of the keys, or all."""
    keys = KeyRing({one: bytes([int(one[1:])]) * 32 for one in ids or KEYS.ids})
    return Vault(lambda: keys, entropy=SystemEntropy())


class EncryptedSqlite(SqliteStore):
    """A file whose payloads are encrypted."""

    async def open(self) -> None:
        """Open it, and encrypt what is not."""
        await super().open()
        await encrypt_quietly(self)


class EncryptedPostgres(PostgresStore):
    """A schema whose payloads are encrypted."""

    async def open(self) -> None:
        """Open it, and encrypt what is not."""
        await super().open()
        await encrypt_quietly(self)


async def encrypt_quietly(store: SqlStore) -> None:
    """Have a store encrypted as if it had always been: nothing tells of it in the audit log."""
    now = datetime.now(UTC)
    document = json_text(
        KeptEncryption(
            encryption=Encryption(key_id="k1", began_at=now, began_by="ada", finished_at=now),
            digests=store.codec.digests_under("k1"),
        )
    )

    async def keep(session: Session, _: datetime) -> None:
        await session.fetch(_KEEP, document)
        await session.look_at_encryption()

    await store._write(keep)  # noqa: SLF001 - past all that is told
