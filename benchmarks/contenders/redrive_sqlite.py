"""Redrive on SQLite, through its front door and as it is out of the box."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from benchmarks.contender import Contender, Role, Run, Workload
from redrive import Event, NewEvent, Redrive
from redrive.stores.sqlite.connection import connect

__all__ = ["CONTENDER"]

_TYPE = "order.paid"
_PAYLOAD = {"order": 42, "total": "19.90", "customer": "acme"}
_TASKS = 100
_PER_CALL = 1_000


class _Shop:
    """An app with one destination that does nothing, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.app = Redrive(f"sqlite:///{folder}/redrive.db")
        self.calls = 0
        self.app.handler("order.*", name="noop")(self._handle)

    async def _handle(self, event: Event[Any]) -> None:  # noqa: ARG002 - it does nothing
        self.calls += 1

    async def publish_in_bulk(self, size: int) -> None:
        for begin in range(0, size, _PER_CALL):
            count = min(_PER_CALL, size - begin)
            await self.app.publish_many(
                [NewEvent(type=_TYPE, payload=_PAYLOAD) for _ in range(count)]
            )

    async def check(self, *, pending: int = 0, delivered: int = 0) -> None:
        figures = await self.app.operations.status()
        (noop,) = figures.destinations
        assert figures.events == pending + delivered
        assert (noop.pending, noop.delivered) == (pending, delivered)
        assert (noop.in_flight, noop.failed, figures.refused_settlements) == (0, 0, 0)
        assert self.calls == delivered


async def _single(size: int, folder: Path) -> Run:
    shop = _Shop(folder)
    async with shop.app as app:
        await app.open()
        began = time.perf_counter()
        for _ in range(size):
            await app.publish(_TYPE, _PAYLOAD)
        seconds = time.perf_counter() - began
        await shop.check(pending=size)
    return Run(count=size, seconds=seconds)


async def _concurrent(size: int, folder: Path) -> Run:
    shop = _Shop(folder)
    async with shop.app as app:

        async def publish_share() -> None:
            for _ in range(size // _TASKS):
                await app.publish(_TYPE, _PAYLOAD)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_TASKS):
                group.create_task(publish_share())
        seconds = time.perf_counter() - began
        count = size // _TASKS * _TASKS
        await shop.check(pending=count)
    return Run(count=count, seconds=seconds)


async def _bulk(size: int, folder: Path) -> Run:
    shop = _Shop(folder)
    async with shop.app:
        began = time.perf_counter()
        await shop.publish_in_bulk(size)
        seconds = time.perf_counter() - began
        await shop.check(pending=size)
    return Run(count=size, seconds=seconds)


async def _drain(size: int, folder: Path) -> Run:
    shop = _Shop(folder)
    async with shop.app as app:
        await shop.publish_in_bulk(size)
        began = time.perf_counter()
        tally = await app.drain()
        seconds = time.perf_counter() - began
        assert (tally.delivered, tally.attempts, tally.refused) == (size, size, 0)
        await shop.check(delivered=size)
    return Run(count=size, seconds=seconds, way="one worker, async handler")


def _describe(folder: Path) -> Mapping[str, str]:
    shop = _Shop(folder)
    connection = connect(folder / "redrive.db")
    settings = shop.app.settings
    return {
        "library": "redrive",
        "sqlite": apsw.sqlite_lib_version(),
        "journal_mode": str(connection.execute("PRAGMA journal_mode").get),
        "synchronous": str(connection.execute("PRAGMA synchronous").get),
        "wal_autocheckpoint": str(connection.execute("PRAGMA wal_autocheckpoint").get),
        "concurrency": str(settings.concurrency),
    }


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    store="sqlite",
    describe=_describe,
    workloads={
        Workload.SINGLE: lambda size, folder: asyncio.run(_single(size, folder)),
        Workload.CONCURRENT: lambda size, folder: asyncio.run(_concurrent(size, folder)),
        Workload.BULK: lambda size, folder: asyncio.run(_bulk(size, folder)),
        Workload.DRAIN: lambda size, folder: asyncio.run(_drain(size, folder)),
    },
)
