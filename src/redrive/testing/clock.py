"""A clock that stands still until it is told how much time has passed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from redrive.model.duration import Duration, duration

__all__ = ["FakeClock"]

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """Time by command; any thread may read it, sleep on it and advance it.

    >>> clock = FakeClock()
    >>> clock.advance("5s")
    >>> clock.monotonic()
    5.0
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed = timedelta(0)
        self._lock = threading.Lock()
        self._sleepers: list[_Sleeper] = []

    def now(self) -> datetime:
        """Return the start plus all that has passed."""
        return self._start + self._passed

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed.total_seconds()

    def advance(self, by: Duration) -> None:
        """Let time pass, and wake whoever has slept long enough on their event loop."""
        with self._lock:
            self._passed += duration(by, name="by")
            woken = [one for one in self._sleepers if one.wakes_at <= self._passed]
            self._sleepers = [one for one in self._sleepers if one.wakes_at > self._passed]
        for sleeper in woken:
            with contextlib.suppress(RuntimeError):  # its loop is closed, so nobody sleeps there
                sleeper.loop.call_soon_threadsafe(sleeper.alarm.set)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return once the clock was advanced that far, counted from the call.

        Were it counted from the first step of a task, an advance in between would be missed.
        """
        alarm, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            sleeper = _Sleeper(self._passed + timedelta(seconds=seconds), loop, alarm)
            if sleeper.wakes_at <= self._passed:
                loop.call_soon(alarm.set)
            else:
                self._sleepers.append(sleeper)
        return self._wake(sleeper)

    async def _wake(self, sleeper: _Sleeper) -> None:
        try:
            await sleeper.alarm.wait()
        finally:
            with self._lock, contextlib.suppress(ValueError):  # an advance has woken it
                self._sleepers.remove(sleeper)


class _Sleeper(NamedTuple):
    wakes_at: timedelta
    loop: asyncio.AbstractEventLoop
    alarm: asyncio.Event
