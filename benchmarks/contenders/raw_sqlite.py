"""The limit of SQLite itself over apsw: the least any queue must do, with nothing around it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role, Run, Workload, rate
from benchmarks.measures.queue import PAYLOAD

__all__ = ["CONTENDER", "Queue"]

_CLAIMED = 1_000
_SHARED = 100
_INSERT = "INSERT INTO tasks (payload) VALUES (?)"
_CLAIM = """
UPDATE tasks SET status = 1 WHERE id IN (
    SELECT id FROM tasks WHERE status = 0 ORDER BY id LIMIT ?
) RETURNING id, payload
"""
# One writer at a time, so what was claimed in one commit is a range of its own.
_MARK = "UPDATE tasks SET status = 2 WHERE id BETWEEN ? AND ?"


class Queue(measures.Queue):
    """A table; what was claimed is marked in the commit that claims the next."""

    way = f"{_CLAIMED:,} per commit"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._connection: Any = None

    async def open(self) -> None:
        """Open the file, and make the table."""
        self._connection = _open(self.place)

    async def close(self) -> None:
        """Close it."""
        self._connection.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Insert a row in a commit of its own."""
        await self.publish_many([payload])

    async def publish_many(self, payloads: Sequence[measures.Payload]) -> None:
        """Insert all in one commit."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, [(json.dumps(one),) for one in payloads])
        self._connection.execute("COMMIT")

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Mark what was claimed and claim the next in one commit: the least there is to do."""
        claimed: list[int] = []
        while claimed or not stop.is_set():
            self._connection.execute("BEGIN IMMEDIATE")
            if claimed:
                self._connection.execute(_MARK, (min(claimed), max(claimed)))
            rows = list(self._connection.execute(_CLAIM, (_CLAIMED,)))
            self._connection.execute("COMMIT")
            claimed = [number for number, _ in rows]
            for _, payload in rows:
                handle(json.loads(payload))
            await asyncio.sleep(0 if claimed else 0.001)

    async def waiting(self) -> int:
        """Return how many are not marked."""
        return int(self._connection.execute("SELECT count(*) FROM tasks WHERE status <> 2").get)


def _open(place: Place) -> apsw.Connection:
    connection = apsw.Connection(str(place.folder / "raw.db"))
    connection.set_busy_timeout(5_000)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS tasks "
        "(id INTEGER PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL)"
    )
    connection.execute("CREATE INDEX IF NOT EXISTS ready ON tasks (id) WHERE status = 0")
    return connection


def _concurrent(size: int, place: Place) -> Run:
    """Insert what 100 tasks would ask for at once in one commit: more cannot be shared."""
    queue = Queue(place)

    async def measure() -> Run:
        await queue.open()
        began = time.perf_counter()
        for _ in range(size // _SHARED):
            await queue.publish_many([PAYLOAD] * _SHARED)
        seconds = time.perf_counter() - began
        assert await queue.waiting() == size // _SHARED * _SHARED
        return rate(size // _SHARED * _SHARED, seconds, f"{_SHARED} per commit")

    return asyncio.run(measure())


def _describe(place: Place) -> Mapping[str, str]:
    connection = _open(place)
    return {
        "library": f"apsw {apsw.apsw_version()}",
        "sqlite": apsw.sqlite_lib_version(),
        "journal_mode": str(connection.execute("PRAGMA journal_mode").get),
        "synchronous": str(connection.execute("PRAGMA synchronous").get),
        "wal_autocheckpoint": str(connection.execute("PRAGMA wal_autocheckpoint").get),
    }


CONTENDER = Contender(
    name="raw apsw",
    role=Role.LIMIT,
    arena=Arena.SQLITE,
    describe=_describe,
    workloads={**measures.queue_workloads(__name__, Queue), Workload.CONCURRENT: _concurrent},
)
