"""Huey on SQLite with fsync on: a peer that forgets a task before it runs it.

It has no call for many tasks at once, and its calls block, so two workloads have no counterpart.
"""

from __future__ import annotations

import importlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender, Role, Run, Workload

__all__ = ["CONTENDER"]

_MOST_TO_DRAIN = 20_000
_PAYLOAD = {"order": 42, "total": "19.90", "customer": "acme"}


class _Queue:
    def __init__(self, folder: Path, name: str = "huey") -> None:
        # As in production: every task logged at INFO to a handler would only slow it down.
        logging.getLogger("huey").setLevel(logging.WARNING)
        self.huey: Any = importlib.import_module("huey").SqliteHuey(
            filename=str(folder / f"{name}.db"), fsync=True
        )
        self.calls = 0
        self.all_done = threading.Event()
        self.expected = 0
        self.noop: Callable[[dict[str, Any]], object] = self.huey.task()(self._noop)

    def _noop(self, _payload: dict[str, Any]) -> None:
        self.calls += 1
        if self.calls == self.expected:
            self.all_done.set()

    def fill(self, size: int) -> None:
        self.expected = size
        for _ in range(size):
            self.noop(_PAYLOAD)
        assert self.huey.storage.queue_size() == size

    def check_drained(self) -> None:
        assert self.calls == self.expected
        assert self.huey.storage.queue_size() == 0


def _single(size: int, folder: Path) -> Run:
    queue = _Queue(folder)
    began = time.perf_counter()
    for _ in range(size):
        queue.noop(_PAYLOAD)
    seconds = time.perf_counter() - began
    assert queue.huey.storage.queue_size() == size
    return Run(count=size, seconds=seconds)


def _drain(size: int, folder: Path) -> Run:
    """Return the better of its two ways; a smaller queue only makes it faster."""
    size = min(size, _MOST_TO_DRAIN)
    ways = (_drain_by_hand(size, folder), _drain_by_consumer(size, folder))
    return min(ways, key=lambda run: run.seconds)


def _drain_by_hand(size: int, folder: Path) -> Run:
    queue = _Queue(folder, "by-hand")
    queue.fill(size)
    huey = queue.huey
    began = time.perf_counter()
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
    seconds = time.perf_counter() - began
    queue.check_drained()
    return Run(count=size, seconds=seconds, way="dequeue and execute in a loop")


def _drain_by_consumer(size: int, folder: Path) -> Run:
    queue = _Queue(folder, "by-consumer")
    queue.fill(size)
    consumer = queue.huey.create_consumer(workers=1, periodic=False)
    began = time.perf_counter()
    consumer.start()
    assert queue.all_done.wait(timeout=600)
    seconds = time.perf_counter() - began
    consumer.stop(graceful=True)
    queue.check_drained()
    return Run(count=size, seconds=seconds, way="consumer, one thread worker")


def _describe(folder: Path) -> Mapping[str, str]:
    connection = _Queue(folder).huey.storage.conn
    read: dict[str, str] = {
        name: str(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
    }
    version = importlib.import_module("huey").__version__
    return {"library": f"huey {version}", "sqlite": sqlite3.sqlite_version, **read}


CONTENDER = Contender(
    name="huey",
    role=Role.PEER,
    store="sqlite",
    describe=_describe,
    workloads={Workload.SINGLE: _single, Workload.DRAIN: _drain},
    requirement="huey",
)
