"""What a worker costs that has nothing to do."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from benchmarks.contender import Arena, Place, Run
from benchmarks.study import Scale, Section, Study, engine_of
from redrive import Event, Redrive

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    queries = _count_queries()
    module = engine_of(arena)
    url: str = importlib.import_module(f"benchmarks.contenders.{module}").Queue(place).url
    app = Redrive(url)

    async def handle(event: Event[Any]) -> None: ...

    app.handler("order.*", name="noop")(handle)
    async with app, app.worker():
        await app.publish("order.paid")
        await asyncio.sleep(3)  # until it has come to rest
        before, cpu, began = queries[0], time.process_time(), time.monotonic()
        await asyncio.sleep(scale.seconds)
        passed = time.monotonic() - began
        figures = {"cpu_percent": (time.process_time() - cpu) / passed * 100}
        if arena is Arena.POSTGRES:
            figures["queries_per_second"] = (queries[0] - before) / passed
    yield Run(figures=figures, point="idle")


def _count_queries() -> list[int]:
    """Return where the queries of all connections are counted that are made from now on."""
    count = [0]
    make = asyncpg.Connection.__init__

    def note(_query: object) -> None:
        count[0] += 1

    def made(connection: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401 - its own
        make(connection, *given, **named)
        connection.add_query_logger(note)

    asyncpg.Connection.__init__ = made
    return count


STUDY = Study(
    title="an idle worker",
    section=Section.RESOURCES,
    axis="",
    figures=("cpu_percent", "queries_per_second"),
    measure=_measure,
)
