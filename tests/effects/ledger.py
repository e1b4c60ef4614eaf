"""A ledger in the store's own database, in which handlers leave what they did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apsw
import asyncpg

from redrive.app.config import parse_store
from redrive.stores.postgres.connection import read_address

__all__ = ["Connection", "Entries", "Ledger"]

Connection = Any
"""What a handler is handed, of either store."""


class Ledger:
    """A table with one row for each time that a number was written down."""

    def __init__(self, url: str) -> None:
        self.is_sqlite = parse_store(url).scheme == "sqlite"
        self._url = url
        self.table = "ledger" if self.is_sqlite else f"{read_address(url).schema}.ledger"
        value = "?" if self.is_sqlite else "$1"
        self._insert = f"INSERT INTO {self.table} VALUES ({value})"

    async def create(self) -> None:
        """Create it, empty."""
        await self.execute(f"DROP TABLE IF EXISTS {self.table}")
        await self.execute(f"CREATE TABLE {self.table} (number integer)")

    async def write(self, connection: Connection, number: int) -> None:
        """Write a number down, within the handler's transaction."""
        if self.is_sqlite:
            connection.execute(self._insert, (number,))
        else:
            await connection.execute(self._insert, number)

    async def numbers(self) -> Counter[int]:
        """Return how often each number is there, as everybody else sees it."""
        return Counter(row[0] for row in await self.execute(f"SELECT number FROM {self.table}"))

    async def execute(self, statement: str) -> list[Any]:
        """Run a statement in a connection of its own."""
        if self.is_sqlite:
            path = parse_store(self._url).path
            connection = apsw.Connection(str(path))
            try:
                connection.set_busy_timeout(10_000)
                return connection.execute(statement).fetchall()
            finally:
                connection.close()
        line = await asyncpg.connect(read_address(self._url).dsn)
        try:
            rows: list[Any] = await line.fetch(statement)
            return rows
        finally:
            await line.close()


class Entries(Ledger):
    """A table with one row for each time that a number was written down for a key, in order."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        values = "?, ?" if self.is_sqlite else "$1, $2"
        self._add = f"INSERT INTO {self.table} (key, number) VALUES ({values})"

    async def create(self) -> None:
        """Create it, empty."""
        place = "integer" if self.is_sqlite else "bigserial"
        await self.execute(f"DROP TABLE IF EXISTS {self.table}")
        await self.execute(
            f"CREATE TABLE {self.table} (place {place} PRIMARY KEY, key text, number integer)"
        )

    async def write(self, connection: Connection, key: str, number: int) -> None:  # type: ignore[override]
        """Write a number down for a key, within the function's transaction."""
        if self.is_sqlite:
            connection.execute(self._add, (key, number))
        else:
            await connection.execute(self._add, key, number)

    async def by_key(self) -> dict[str, list[int]]:
        """Return what was written down for each key, in order."""
        found: dict[str, list[int]] = {}
        rows = await self.execute(f"SELECT key, number FROM {self.table} ORDER BY place")
        for key, number in rows:
            found.setdefault(key, []).append(number)
        return found
