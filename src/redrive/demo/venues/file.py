"""A venue in one SQLite file, in the demo's temporary folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from redrive.app.redrive import Redrive

__all__ = ["File"]


class File:
    """It goes with the folder."""

    place = "one SQLite file"
    remains = "the temporary store is removed"
    poll = "1s"
    takings = "takings"

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/shop.db"
        self.exports = (f"export REDRIVE_STORE={self.store}",)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    async def furnish(self, app: Redrive) -> None:
        """Create the shop's own table, in the same file as the events."""
        async with app.transaction() as tx:
            tx.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, total REAL NOT NULL)")

    @asynccontextmanager
    async def sale(self, app: Redrive, number: int, total: float) -> AsyncIterator[object]:
        """Write an order in a transaction of the store's."""
        async with app.transaction() as tx:
            tx.execute("INSERT INTO orders VALUES (?, ?)", (number, total))
            yield tx

    async def orders_written(self, app: Redrive) -> int:
        """Count the orders in the shop's table."""
        async with app.transaction() as tx:
            return int(tx.execute("SELECT count(*) FROM orders").get)

    async def takings_read(self, app: Redrive) -> int:
        """Return what the read model says."""
        async with app.transaction() as tx:
            return int(tx.execute("SELECT total FROM takings").get)
