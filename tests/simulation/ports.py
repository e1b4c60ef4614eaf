"""The ports of a simulated process: a clock that may be wrong, and threads that are none."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from redrive.clock import SystemClock
from redrive.executor import Duty, RunningDuty
from redrive.testing.fakes import InlineExecutor
from tests.simulation.loop import SimulationLoop, Strand

__all__ = ["HostClock", "StrandExecutor"]

T = TypeVar("T")
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class HostClock(SystemClock):
    """A machine's clock: it may be set, and run too fast or too slow."""

    def __init__(self, loop: SimulationLoop, *, drift: float = 0.0, ahead: float = 0.0) -> None:
        self._loop = loop
        self._pace = 1.0 + drift
        self._offset = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return _BEGINNING + timedelta(seconds=self.monotonic()) + self._offset

    def monotonic(self) -> float:
        return self._loop.time() * self._pace

    async def sleep(self, seconds: float) -> None:
        await self._loop.pause(max(0.0, seconds) / self._pace)

    def step(self, by: timedelta) -> None:
        """Set it; only `now` changes."""
        self._offset += by


class StrandExecutor:
    """Functions run at once where they are submitted, duties on a strand of their own."""

    def __init__(self, loop: SimulationLoop, strand: Strand) -> None:
        self._loop = loop
        self._strand = strand
        self._inline = InlineExecutor()

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        return self._inline.submit(function)

    def start(self, duty: Duty, *, name: str) -> RunningDuty:
        context: contextvars.Context = self._strand.context()
        stopped = asyncio.Event()
        task = self._loop.create_task(duty(stopped), name=name, context=context)
        return _StrandDuty(task, stopped)


class _StrandDuty:
    def __init__(self, task: asyncio.Task[None], stopped: asyncio.Event) -> None:
        self._task = task
        self._stopped = stopped

    async def stop(self) -> None:
        self._stopped.set()
        await self._task
