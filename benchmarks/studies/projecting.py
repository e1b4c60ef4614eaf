"""A read model of the log: appending, projecting, and the same statements by themselves."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import asyncpg

from benchmarks.contender import Arena, Place, Run, rate
from benchmarks.measures.engine import TYPE
from benchmarks.measures.projecting import Apply, applying, run_on
from benchmarks.measures.reading import PAGE, TABLE, rows_of
from benchmarks.measures.shop import store_url
from benchmarks.study import Scale, Section, Study, turns
from redrive import Event, NewEvent, ReadModel, Redrive

__all__ = [
    "APPEND",
    "EACH",
    "EACH_AGAIN",
    "EACH_BARE",
    "LISTS",
    "LISTS_AGAIN",
    "LISTS_BARE",
    "STUDY",
]

APPEND = "append, 1,000 per call"
EACH = "project, an upsert for each"
LISTS = "project, in lists"
EACH_AGAIN = "rebuild, an upsert for each"
LISTS_AGAIN = "rebuild, in lists"
EACH_BARE = "the driver alone, an upsert for each"
LISTS_BARE = "the driver alone, in lists"


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    count = scale.sample
    each, lists = applying(arena, lists=False), applying(arena, lists=True)
    points: dict[str, Callable[[int], AsyncIterator[Run]]] = {
        EACH: lambda number: _project(count, arena, place, f"each_{number}", each, lists=False),
        LISTS: lambda number: _project(count, arena, place, f"lists_{number}", lists, lists=True),
        EACH_BARE: lambda _: _bare(count, arena, place, each, point=EACH_BARE),
        LISTS_BARE: lambda _: _bare(count, arena, place, lists, point=LISTS_BARE),
    }
    for number, (_, runs) in enumerate(turns(points, scale.rounds)):
        async for run in runs(number):
            yield run


async def _project(
    count: int, arena: Arena, place: Place, name: str, apply: Apply, *, lists: bool
) -> AsyncIterator[Run]:
    """Append events, and project them: timed from the first call to when all are applied."""
    app = Redrive(store_url(arena, place, f"projecting_{name}"))
    begun: list[float] = []

    async def each(event: Event[int], model: ReadModel) -> None:
        if not begun:
            begun.append(time.perf_counter())
        await apply(model.connection, [(event.key or "", event.payload)])

    async def many(events: list[Event[int]], model: ReadModel) -> None:
        if not begun:
            begun.append(time.perf_counter())
        await apply(model.connection, [(one.key or "", one.payload) for one in events])

    async def empty(model: ReadModel) -> None:
        await run_on(model.connection, "DELETE FROM paid")

    app.projection("order.*", name="paid", batch=lists, truncate=empty)(many if lists else each)
    live, again = (LISTS, LISTS_AGAIN) if lists else (EACH, EACH_AGAIN)
    async with app:
        if arena is Arena.SQLITE:  # another library must not open the file of the store
            async with app.transaction() as transaction:
                await _create(transaction)
        else:
            async with _Driver(arena, place) as driver:
                await _create(driver.connection)
        started = time.perf_counter()
        for first in range(0, count, PAGE):
            rows = rows_of(first, count)
            await app.publish_many([NewEvent(type=TYPE, key=key, payload=n) for key, n in rows])
        yield Run(figures=rate(count, time.perf_counter() - started).figures, point=APPEND)
        for point in (live, again):
            begun.clear()
            await app.drain()
            ended = time.perf_counter()
            [figures] = await app.projections.list()
            if figures.checkpoint.count != count:
                raise RuntimeError(f"{figures.checkpoint.count} of {count} events were projected")
            yield Run(figures=rate(count, ended - begun[0]).figures, point=point)
            await app.projections.rebuild("paid", by="benchmark")


async def _bare(
    count: int, arena: Arena, place: Place, apply: Apply, *, point: str
) -> AsyncIterator[Run]:
    async with _Driver(arena, place) as driver:
        await _create(driver.connection)
        began = time.perf_counter()
        for first in range(0, count, PAGE):
            await driver.execute("BEGIN")
            rows = rows_of(first, count)
            if point == LISTS_BARE:
                await apply(driver.connection, rows)
            else:
                for row in rows:
                    await apply(driver.connection, [row])
            await driver.execute("COMMIT")
        yield Run(figures=rate(count, time.perf_counter() - began).figures, point=point)


class _Driver:
    """A connection of the driver alone, with the durability of the store's."""

    def __init__(self, arena: Arena, place: Place) -> None:
        self._place = place
        self._is_file = arena is Arena.SQLITE
        self.connection: Any = None

    async def __aenter__(self) -> Self:
        if self._is_file:
            self.connection = sqlite3.connect(self._place.folder / "bare.db", isolation_level=None)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = FULL")
        else:
            self.connection = await asyncpg.connect(self._place.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        closing = self.connection.close()
        if not self._is_file:
            await closing

    async def execute(self, statement: str) -> None:
        done = self.connection.execute(statement)
        if not self._is_file:
            await done


async def _create(connection: Any) -> None:  # noqa: ANN401 - of any driver
    """Create the table anew."""
    for statement in ("DROP TABLE IF EXISTS paid", TABLE):
        await run_on(connection, statement)


STUDY = Study(
    title="a read model of the log",
    section=Section.FEATURES,
    axis="what is done",
    figures=("per_second",),
    measure=_measure,
)
