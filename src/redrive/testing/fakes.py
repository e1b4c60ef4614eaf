"""Ports without surprise: ids that count, chance that repeats itself, no threads."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from redrive.executor import Duty, RunningDuty

__all__ = ["CountingIds", "InlineExecutor", "SeededRng"]

T = TypeVar("T")


class CountingIds:
    """Ids in the form of the real ones, counted from 1."""

    def __init__(self) -> None:
        self._events = count(1)
        self._workers = count(1)

    def event_id(self) -> str:
        """Return the next UUIDv7."""
        return f"01890000-0000-7000-8000-{next(self._events):012x}"

    def worker_id(self) -> str:
        """Return `worker-1`, then `worker-2`, and so on."""
        return f"worker-{next(self._workers)}"


class SeededRng:
    """The same chances in every run."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - jitter, not cryptography

    def uniform(self, low: float, high: float) -> float:
        """Return the next number between `low` and `high`."""
        return self._random.uniform(low, high)


class InlineExecutor:
    """Runs functions at once where they are submitted, and duties as tasks on the same loop."""

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function to its end, and return its result as a future that is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # A real handler has a thread without an event loop, in which `app.sync` may block.
        asyncio._set_running_loop(None)  # noqa: SLF001 - asyncio exports it for such a case
        try:
            future.set_result(contextvars.copy_context().run(function))
        except StopIteration:
            future.set_exception(RuntimeError("the handler raised StopIteration"))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            future.set_exception(error)
        finally:
            asyncio._set_running_loop(loop)  # noqa: SLF001 - as above
        return future

    def start(self, duty: Duty, *, name: str) -> RunningDuty:
        """Run a duty beside everything else on this loop."""
        stopped = asyncio.Event()
        return _DutyTask(asyncio.create_task(duty(stopped), name=name), stopped)


class _DutyTask:
    def __init__(self, task: asyncio.Task[None], stopped: asyncio.Event) -> None:
        self._task = task
        self._stopped = stopped

    async def stop(self) -> None:
        self._stopped.set()
        await self._task
