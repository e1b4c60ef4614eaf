"""Huey on SQLite with fsync on: a peer that forgets a task before it runs it.

It has no call for many tasks at once, and its calls block, so 100 tasks gain nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sqlite3
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role, Workload

__all__ = ["CONTENDER", "Queue"]

_REST = 0.001


class Queue(measures.Queue):
    """Tasks are taken and executed in a loop, which is faster than its consumer."""

    has_bulk = False
    way = "dequeue and execute in a loop"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        # As in production: every task logged at INFO to a handler would only slow it down.
        logging.getLogger("huey").setLevel(logging.WARNING)
        self._huey: Any = importlib.import_module("huey").SqliteHuey(
            filename=str(place.folder / "huey.db"), fsync=True
        )
        self._handle: measures.Handle = lambda _: None
        self._task = self._huey.task()(self._noop)

    def _noop(self, payload: measures.Payload) -> None:
        self._handle(payload)

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Close the connection of this thread."""
        self._huey.storage.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Enqueue one task."""
        self._task(payload)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Dequeue and execute on a thread; nothing is settled, as a task is gone once dequeued."""
        self._handle = handle
        await asyncio.to_thread(self._work, stop)

    def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            task = self._huey.dequeue()
            if task is None:
                time.sleep(_REST)
            else:
                self._huey.execute(task)

    async def waiting(self) -> int:
        """Return how many tasks are in its queue."""
        return int(self._huey.storage.queue_size())


def _describe(place: Place) -> Mapping[str, str]:
    huey: Any = importlib.import_module("huey").SqliteHuey(
        filename=str(place.folder / "huey.db"), fsync=True
    )
    names = ("journal_mode", "synchronous", "wal_autocheckpoint")
    read = {n: str(huey.storage.conn.execute(f"PRAGMA {n}").fetchone()[0]) for n in names}
    return {"library": f"huey {version('huey')}", "sqlite": sqlite3.sqlite_version, **read}


_WORKLOADS = measures.queue_workloads(__name__, Queue)

CONTENDER = Contender(
    name="Huey",
    role=Role.PEER,
    arena=Arena.SQLITE,
    describe=_describe,
    workloads={name: one for name, one in _WORKLOADS.items() if name is not Workload.CONCURRENT},
    requirements=["huey"],
    most=5_000,
)
