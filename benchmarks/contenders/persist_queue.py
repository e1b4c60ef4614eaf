"""persist-queue on SQLite: a queue with acknowledgement, for the threads of one process."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role, Workload

__all__ = ["CONTENDER", "Queue"]


class Queue(measures.Queue):
    """It keeps its place in memory, so publisher and worker must be one process."""

    has_bulk = False
    way = "get and ack in a loop"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._queue: Any = importlib.import_module("persistqueue").SQLiteAckQueue(
            str(place.folder / "persist"), auto_commit=True, multithreading=True
        )

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Close the file."""
        self._queue.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Put one item."""
        self._queue.put(payload)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Get and acknowledge, one after the other."""
        while not stop.is_set():
            if self._queue.size:
                item = self._queue.get()
                handle(item)
                self._queue.ack(item)
            await asyncio.sleep(0)

    async def waiting(self) -> int:
        """Return how many items are not acknowledged."""
        return int(self._queue.size) + int(self._queue.unack_count())


def _describe(place: Place) -> Mapping[str, str]:
    queue: Any = importlib.import_module("persistqueue").SQLiteAckQueue(
        str(place.folder / "persist"), auto_commit=True, multithreading=True
    )
    connection = vars(queue)["_putter"]
    names = ("journal_mode", "synchronous", "wal_autocheckpoint")
    read = {n: str(connection.execute(f"PRAGMA {n}").fetchone()[0]) for n in names}
    return {
        "library": f"persist-queue {version('persist-queue')}",
        "sqlite": sqlite3.sqlite_version,
        **read,
    }


_WORKLOADS = measures.queue_workloads(__name__, Queue)

CONTENDER = Contender(
    name="persist-queue",
    role=Role.PEER,
    arena=Arena.SQLITE,
    describe=_describe,
    workloads={name: _WORKLOADS[name] for name in (Workload.SINGLE, Workload.DRAIN)},
    requirements=["persist-queue"],
    most=5_000,
    is_quick=False,
)
