"""A venue in a PostgreSQL database: a schema of its own, which is dropped at the end."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

# First, because it says what to install where the driver is missing.
from redrive.stores.postgres import read_address

# isort: split
import asyncpg

from redrive.app.redrive import Redrive
from redrive.errors import StoreUnavailableError
from redrive.stores.postgres.connection import LOST, translated

__all__ = ["Postgres"]

_CONNECT_SECONDS = 10.0
_DROP_SECONDS = 20.0


class Postgres:
    """The shop has one connection, for its own table and for what it publishes with that."""

    poll = "200ms"  # nobody tells of what was published within the shop's own transaction

    def __init__(self, url: str, folder: Path) -> None:
        self._schema = folder.name.replace("-", "_")
        self.store = _with_schema(url, self._schema)
        self._address = read_address(self.store)
        self._connection: asyncpg.Connection[Any] | None = None

    @property
    def exports(self) -> tuple[str, ...]:
        """What to type first in another terminal."""
        shown = _without_password(self.store)
        named = f"export REDRIVE_STORE={shlex.quote(shown)}"
        return (named,) if shown == self.store else ("export PGPASSWORD=...", named)

    @property
    def place(self) -> str:
        """What lies between the shop and its services."""
        return f"the PostgreSQL schema {self._schema}, dropped at the end,"

    @property
    def remains(self) -> str:
        """What becomes of it."""
        return f"the schema {self._schema} is dropped"

    @property
    def takings(self) -> str:
        """The name of the table of the read model."""
        return f"{self._schema}.takings"

    async def __aenter__(self) -> Self:
        with translated(self._address):
            connection = await self._connected()
            try:
                await self._execute(f"CREATE SCHEMA {self._schema}")
            except BaseException:
                await connection.close(timeout=_CONNECT_SECONDS)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            # Broken off, it may be within a transaction, which would take the drop back.
            self._connection.terminate()
        try:
            async with asyncio.timeout(_DROP_SECONDS):
                await self._execute(f"DROP SCHEMA {self._schema} CASCADE")
                await (await self._connected()).close()
        except (asyncpg.PostgresError, *LOST) as failure:
            raise StoreUnavailableError(
                f"The schema {self._schema} is left behind in {self._address.name} "
                f"({failure or type(failure).__name__}). Remove it with: "
                f"DROP SCHEMA {self._schema} CASCADE"
            ) from failure
        finally:
            if self._connection is not None:
                self._connection.terminate()  # if it could not be closed

    async def furnish(self, app: Redrive) -> None:
        """Create the shop's own table, in the same schema as the events."""
        del app
        with translated(self._address):
            await self._execute(
                f"CREATE TABLE {self._schema}.orders "
                "(number integer PRIMARY KEY, total double precision NOT NULL)"
            )

    @asynccontextmanager
    async def sale(self, app: Redrive, number: int, total: float) -> AsyncIterator[object]:
        """Write an order in a transaction of the shop's own connection."""
        del app
        with translated(self._address):
            connection = await self._connected()
            async with connection.transaction():
                await connection.execute(
                    f"INSERT INTO {self._schema}.orders VALUES ($1, $2)",  # noqa: S608 - our name
                    *(number, total),
                )
                yield connection

    async def orders_written(self, app: Redrive) -> int:
        """Count the orders in the shop's table."""
        del app
        return await self._number(f"SELECT count(*) FROM {self._schema}.orders")  # noqa: S608 - our name

    async def takings_read(self, app: Redrive) -> int:
        """Return what the read model says."""
        del app
        return await self._number(f"SELECT total FROM {self.takings}")  # noqa: S608 - our name

    async def _number(self, statement: str) -> int:
        with translated(self._address):
            return int(await (await self._connected()).fetchval(statement))

    async def _execute(self, statement: str) -> None:
        await (await self._connected()).execute(statement)

    async def _connected(self) -> asyncpg.Connection[Any]:
        """Return the shop's connection; one that was lost is made anew."""
        if self._connection is None or self._connection.is_closed():
            # Without prepared statements, so that a pooling proxy may stand in between.
            self._connection = await asyncpg.connect(
                self._address.dsn, timeout=_CONNECT_SECONDS, statement_cache_size=0
            )
        return self._connection


def _with_schema(url: str, schema: str) -> str:
    parts = urlsplit(url)
    given = {**dict(parse_qsl(parts.query)), "schema": schema}
    return urlunsplit(parts._replace(query=urlencode(given)))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}{at}{host}"
    query = urlencode([one for one in parse_qsl(parts.query) if one[0] != "password"])
    return urlunsplit(parts._replace(netloc=netloc, query=query))
