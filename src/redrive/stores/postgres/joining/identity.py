"""Which database a connection leads to, so that events do not land in another one."""

from __future__ import annotations

import weakref

import msgspec

from redrive.errors import TransactionError
from redrive.stores.postgres.connection import Address
from redrive.stores.postgres.pool import Link

__all__ = ["Acquaintances", "Identity", "read_identity"]

_DATABASE = "SELECT current_database()"
_DATABASE_AND_SERVER = "SELECT current_database(), system_identifier::text FROM pg_control_system()"


class Identity(msgspec.Struct, frozen=True):
    """A database by its name, and its server by the number it was made with, if that is told."""

    database: str
    server: str | None = None


async def read_identity(link: Link, *, with_server: bool) -> Identity:
    """Return which database this is; some hosts do not let everybody ask for the server."""
    (row,) = await link.fetch(_DATABASE_AND_SERVER if with_server else _DATABASE)
    return Identity(*row)


class Acquaintances:
    """The connections that were found to lead to the store's own database; each is asked once."""

    def __init__(self, address: Address, own: Identity) -> None:
        self._address = address
        self._own = own
        self._known: weakref.WeakSet[object] = weakref.WeakSet()

    async def check(self, connection: object, link: Link) -> None:
        """Raise `TransactionError` unless the caller's connection leads to the same database."""
        own = self._own
        if connection in self._known:
            return
        theirs = await read_identity(link, with_server=own.server is not None)
        if theirs != own:
            where = (
                "a database of the same name on another server"
                if theirs.database == own.database
                else f"the database {theirs.database}"
            )
            raise TransactionError(
                f"within= got a connection to {where}, but this app keeps its events in "
                f"{self._address.name}; a transaction cannot reach both. Nothing was stored."
            )
        if connection is not None:
            self._known.add(connection)
