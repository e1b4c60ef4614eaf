"""A projection whose versions are made anew and swapped, again and again, until it is killed."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from itertools import count
from types import TracebackType
from typing import Any, Self

import apsw
import asyncpg

from redrive import Event, ReadModel, Redrive

__all__ = ["PER_SECOND", "Readers", "declare", "make_anew", "poll"]

PER_SECOND = 100
"""How often readers look."""


class Readers:
    """Those who read `things` by its plain name, on a connection of their own."""

    def __init__(self, url: str) -> None:
        self._url = url
        schema = url.partition("schema=")[2]
        self.table = f"{schema}.things" if schema else "things"
        self._connection: Any = None

    async def __aenter__(self) -> Self:
        if self._url.startswith("sqlite"):
            self._connection = apsw.Connection(self._url.removeprefix("sqlite:///"))
            self._connection.set_busy_timeout(20_000)
        else:
            self._connection = await asyncpg.connect(self._url.partition("?")[0])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        closing = self._connection.close()
        if closing is not None:
            await closing

    async def count(self) -> int:
        """Return how many things they see."""
        statement = f"SELECT count(*) FROM {self.table}"  # noqa: S608 - a test
        if self._url.startswith("sqlite"):
            return int(self._connection.execute(statement).get)
        return int(await self._connection.fetchval(statement))

    async def last(self) -> int:
        """Return the number of the last thing they see: quick, however many there are."""
        statement = f"SELECT coalesce(max(n), -1) FROM {self.table}"  # noqa: S608 - a test
        if self._url.startswith("sqlite"):
            return int(self._connection.execute(statement).get)
        return int(await self._connection.fetchval(statement))

    async def clear(self) -> None:
        """Remove what is left of it."""
        for one in (
            f"DROP VIEW IF EXISTS {self.table}",
            f"DROP TABLE IF EXISTS {self.table}_v1",
            f"DROP TABLE IF EXISTS {self.table}_v2",
        ):
            done = self._connection.execute(one)
            if hasattr(done, "__await__"):
                await done


def poll(url: str, seen: list[int], stopped: threading.Event) -> float:
    """Look for the last thing, so many times a second; return how often it was, by the second.

    A look that comes late is made up for, so that only looks that take too long are too few.
    """

    async def look() -> float:
        begun = time.monotonic()
        owed: float = 1
        async with Readers(url) as readers:
            while len(seen) < owed or not stopped.is_set():
                seen.append(await readers.last())
                if not stopped.wait(begun + len(seen) / PER_SECOND - time.monotonic()):
                    owed = (time.monotonic() - begun) * PER_SECOND
        return len(seen) / (time.monotonic() - begun)

    return asyncio.run(look())


def declare(app: Redrive, table: str, *versions: int) -> None:
    """Declare versions of a projection that write down each thing."""

    async def create(model: ReadModel) -> None:
        await _run(model, f"CREATE TABLE {model.table(table)} (n INTEGER PRIMARY KEY)")

    async def apply(events: list[Event[Any]], model: ReadModel) -> None:
        numbers = ", ".join(f"({event.payload['n']})" for event in events)
        await _run(model, f"INSERT INTO {model.table(table)} VALUES {numbers}")  # noqa: S608 - a test

    for version in versions:
        declared = app.projection(
            "thing.*", name="things", version=version, tables=[table], create=create, batch=True
        )
        declared(apply)


async def _run(model: ReadModel, statement: str) -> None:
    done = model.connection.execute(statement)
    if hasattr(done, "__await__"):
        await done


async def make_anew(url: str, *, times: int | None = 1) -> tuple[int, int]:
    """Make the version anew that readers do not have, and give it to them; return old and new."""
    app = Redrive(url, lease="6s")
    declare(app, Readers(url).table, 1, 2)
    now = other = 0
    async with app, app.worker():
        for _ in count() if times is None else range(times):
            now = (await app.operations.projection("things")).checkpoint.version
            other = 3 - now
            await app.projections.rebuild("things", by="ada", version=other)
            await app.projections.swap("things", by="ada", version=other, timeout="60s")
    return now, other


if __name__ == "__main__":
    asyncio.run(make_anew(sys.argv[1], times=None))
