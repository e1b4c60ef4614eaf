"""The workloads of a log that is read: appending to it, and making a read model of what it has."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from benchmarks.contender import Measure, Place, Run, Workload, rate
from benchmarks.measures.workloads import run_on_loop

__all__ = ["KEYS", "PAGE", "TABLE", "UPSERT", "Log", "Row", "log_workloads", "rows_of"]

KEYS = 500
PAGE = 1_000
TABLE = "CREATE TABLE IF NOT EXISTS paid (key text PRIMARY KEY, last bigint, times bigint)"
UPSERT = """
INSERT INTO paid AS known (key, last, times) VALUES ($1, $2, 1)
ON CONFLICT (key) DO UPDATE SET last = excluded.last, times = known.times + 1
"""

Row = tuple[str, int]
"""The key of an event, and its number."""


class Log(ABC):
    """A log in a place, and a read model with a row for each key."""

    takes_lists = False
    """Whether a function of a projection can be given many events."""
    way = ""
    """How it projects, for the report."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    async def open(self, *, lists: bool = False) -> None:
        """Make ready, with a table for the read model."""

    @abstractmethod
    async def append(self, rows: Sequence[Row]) -> None:
        """Return when an event for each row is durable, in as few calls as there can be."""

    @abstractmethod
    async def project(self) -> None:
        """Return when all events are applied, each once and with how far it has come."""

    @abstractmethod
    async def counted(self) -> int:
        """Return how many events are in the read model."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything."""


def rows_of(first: int, count: int) -> list[Row]:
    """Return a page of what is appended."""
    return [(f"k{number % KEYS}", number) for number in range(first, min(count, first + PAGE))]


def log_workloads(make: Callable[[Place], Log]) -> Mapping[Workload, Measure]:
    """Return the workloads of a log."""

    def on_loop(measure: Callable[[int, Log], Coroutine[Any, Any, Run]]) -> Measure:
        return lambda size, place: run_on_loop(measure(size, make(place)))

    workloads = {Workload.APPEND: on_loop(_append), Workload.PROJECT: on_loop(_project)}
    if getattr(make, "takes_lists", False):
        workloads[Workload.PROJECT_LISTS] = on_loop(_project_lists)
    return workloads


async def _append(size: int, log: Log) -> Run:
    await log.open()
    began = time.perf_counter()
    await _fill(size, log)
    seconds = time.perf_counter() - began
    await log.close()
    return rate(size, seconds)


async def _project(size: int, log: Log) -> Run:
    return await _projected(size, log, lists=False)


async def _project_lists(size: int, log: Log) -> Run:
    return await _projected(size, log, lists=True)


async def _projected(size: int, log: Log, *, lists: bool) -> Run:
    await log.open(lists=lists)
    await _fill(size, log)
    began = time.perf_counter()
    await log.project()
    seconds = time.perf_counter() - began
    assert await log.counted() == size
    await log.close()
    return rate(size, seconds, log.way)


async def _fill(size: int, log: Log) -> None:
    for first in range(0, size, PAGE):
        await log.append(rows_of(first, size))
