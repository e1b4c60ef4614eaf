"""Which database a connection leads to, so that events do not land in another one."""

from __future__ import annotations

import weakref
from typing import Any

import asyncpg
import msgspec

from redrive.errors import TransactionError
from redrive.stores.postgres.connection import Address, Link
from redrive.stores.postgres.joining.caller import Caller

__all__ = ["Acquaintances", "Identity", "read_identity"]

_DATABASE = "SELECT current_database()"
_DATABASE_AND_SERVER = "SELECT current_database(), system_identifier::text FROM pg_control_system()"


class Identity(msgspec.Struct, frozen=True):
    """A database by its name, and its server by the number it was made with, if that is told."""

    database: str
    server: str | None = None


async def read_identity(connection: asyncpg.Connection[Any]) -> Identity:
    """Return which database this is, in the open transaction; some hosts hide the server."""
    try:
        async with connection.transaction():
            return Identity(*await connection.fetchrow(_DATABASE_AND_SERVER))
    except asyncpg.PostgresError:
        return Identity(await connection.fetchval(_DATABASE))


class Acquaintances:
    """The connections that were found to lead to the store's own database; each is asked once."""

    def __init__(self, address: Address) -> None:
        self.identity: Identity | None = None
        self._address = address
        self._known: weakref.WeakSet[object] = weakref.WeakSet()

    async def check(self, caller: Caller, link: Link) -> None:
        """Raise `TransactionError` unless the caller's connection leads to the same database."""
        line, own = caller.line, self.identity
        if own is None or line in self._known:
            return
        statement = _DATABASE if own.server is None else _DATABASE_AND_SERVER
        (row,) = await link.fetch(statement)
        if Identity(*row) != own:
            where = (
                f"the database {row[0]}"
                if row[0] != own.database
                else f"a database of the same name on another server, {row[0]}"
            )
            raise TransactionError(
                f"within= got a connection to {where}, but this app keeps its events in "
                f"{self._address.name}; a transaction cannot reach both. Nothing was stored."
            )
        if line is not None:
            self._known.add(line)
