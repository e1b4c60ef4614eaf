"""The schema that a kit has for itself in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redrive.clock import SystemIds

__all__ = ["OwnSchema"]


class OwnSchema:
    """A schema that did not exist before, and is dropped in the end.

    Without a name in the URL it gets one that nobody else has, so that tests may run side by side.
    One that was there already is left alone.
    """

    def __init__(self, url: str) -> None:
        if "schema" not in parse_qs(urlsplit(url).query):
            between = "&" if urlsplit(url).query else "?"
            url = f"{url}{between}schema=kit_{SystemIds().event_id().replace('-', '')}"
        self.url = url
        self._is_ours = False

    async def claim(self) -> None:
        """Find out whether it is ours to be made."""
        async with self._connected() as (connection, name):
            known = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"
            self._is_ours = not await connection.fetchval(known, name)

    async def drop(self) -> None:
        """Remove it with all that is in it, if it is ours."""
        if self._is_ours:
            async with self._connected() as (connection, name):
                await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')

    async def select(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        async with self._connected() as (connection, _):
            return [tuple(row) for row in await connection.fetch(statement)]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Any, str]]:
        import asyncpg  # noqa: PLC0415 - only who has such a store has the driver

        from redrive.stores.postgres.connection import read_address, translated  # noqa: PLC0415

        address = read_address(self.url)
        with translated(address):
            connection = await asyncpg.connect(address.dsn)
        try:
            yield connection, address.schema
        finally:
            await connection.close()
