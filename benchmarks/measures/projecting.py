"""Redrive as a log with a read model, whatever its store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from benchmarks.contender import Arena, Place
from benchmarks.measures.engine import TYPE
from benchmarks.measures.reading import TABLE, UPSERT, Log, Row
from redrive import Event, NewEvent, ReadModel, Redrive

__all__ = ["RedriveLog", "applying", "run_on"]

_UPSERT_LIST = """
INSERT INTO paid AS known (key, last, times)
SELECT key, max(last), count(*) FROM unnest($1::text[], $2::bigint[]) AS given (key, last)
GROUP BY key ORDER BY key
ON CONFLICT (key) DO UPDATE SET last = excluded.last, times = known.times + excluded.times
"""
_ON_FILE = UPSERT.replace("$", "?")

Apply = Callable[[Any, Sequence[Row]], Awaitable[None]]
"""Writes rows with a connection in a transaction."""


def applying(arena: Arena, *, lists: bool) -> Apply:
    """Return what writes a row, or many, to the read model of a store."""
    if arena is Arena.SQLITE:
        return _list_on_file if lists else _each_on_file
    return _list if lists else _each


async def _each(connection: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401 - of asyncpg
    [(key, number)] = rows
    await connection.execute(UPSERT, key, number)


async def _list(connection: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401 - of asyncpg
    keys, numbers = zip(*rows, strict=True)
    await connection.execute(_UPSERT_LIST, keys, numbers)


async def _each_on_file(connection: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401 - of two drivers
    connection.execute(_ON_FILE, rows[0])


async def _list_on_file(connection: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401 - of two drivers
    connection.executemany(_ON_FILE, rows)


async def run_on(connection: Any, statement: str) -> None:  # noqa: ANN401 - of any driver
    """Run a statement on a connection of any driver."""
    done = connection.execute(statement)
    if isinstance(done, Awaitable):
        await done


class RedriveLog(Log):
    """An app with one projection, through its front door."""

    takes_lists = True
    way = "as many in a transaction as take 50 ms"

    def __init__(self, place: Place, *, arena: Arena, store: str) -> None:
        super().__init__(place)
        self.app = Redrive(store)
        self._arena = arena

    async def open(self, *, lists: bool = False) -> None:
        """Declare the projection, and make its table with the first event."""
        apply = applying(self._arena, lists=lists)

        async def each(event: Event[int], model: ReadModel) -> None:
            await apply(model.connection, [(event.key or "", event.payload)])

        async def many(events: list[Event[int]], model: ReadModel) -> None:
            await apply(model.connection, [(one.key or "", one.payload) for one in events])

        self.app.projection("order.*", name="paid", batch=lists)(many if lists else each)
        await self.app.open()
        if self._arena is Arena.SQLITE:
            async with self.app.transaction() as transaction:
                await run_on(transaction, TABLE)
        else:
            connection = await asyncpg.connect(self.place.url)
            await connection.execute(TABLE)
            await connection.close()
        await self.app.drain()  # so that nothing is left of having declared it

    async def append(self, rows: Sequence[Row]) -> None:
        """Publish them in one call."""
        await self.app.publish_many([NewEvent(type=TYPE, key=key, payload=n) for key, n in rows])

    async def project(self) -> None:
        """Read to the end of the log."""
        await self.app.drain()

    async def counted(self) -> int:
        """Return how many it has applied."""
        [figures] = await self.app.projections.list()
        return figures.checkpoint.count

    async def close(self) -> None:
        """Close the store."""
        await self.app.close()
