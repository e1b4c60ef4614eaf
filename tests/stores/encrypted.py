"""Stores that are encrypted from the moment they are opened first."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw
import asyncpg

from redrive.clock import SystemEntropy
from redrive.model.encryption import Encryption
from redrive.sealing import KeyRing, Vault
from redrive.stores.codec import json_text
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import read_address
from redrive.stores.sealed import KeptEncryption
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore
from redrive.stores.sqlite import SqliteStore

__all__ = ["KEYS", "EncryptedPostgres", "EncryptedSqlite", "a_vault", "rows_of"]

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


async def rows_of(url: str) -> dict[str, list[str]]:
    """Return all that a store keeps, as text, by table and column."""
    if url.startswith("sqlite"):
        return _rows_of_file(url.removeprefix("sqlite:///"))
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        tables = await connection.fetch(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = $1 AND table_type = 'BASE TABLE'",
            address.schema,
        )
        found: dict[str, list[str]] = {}
        for (table,) in tables:
            select = f'SELECT * FROM {address.schema}."{table}"'  # noqa: S608 - of the schema
            for row in await connection.fetch(select):
                for name, value in row.items():
                    found.setdefault(f"{table}.{name}", []).append(str(value))
        return found
    finally:
        await connection.close()


def _rows_of_file(path: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'redrive_*'"
    for table in [str(table) for (table,) in connection.execute(tables)]:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - of the schema
            for name, value in zip(names, row, strict=True):
                found.setdefault(f"{table.removeprefix('redrive_')}.{name}", []).append(str(value))
    connection.close()
    return found
