"""Calls of a function one after the other, each with a time of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import timedelta
from types import coroutine
from typing import Any, Self

from redrive.model.delivery import Leased
from redrive.model.outcome import Fault, Faulted, Nature, Outcome
from redrive.policies.capture import timed_out

__all__ = ["TimedCalls", "is_being_cancelled"]

_Attempt = Callable[[Sequence[Leased], object], Awaitable[Outcome]]


def is_being_cancelled() -> bool:
    """Tell whether the running task is to end, rather than something that it has waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TimedCalls:
    """Calls of the running task within a block, each ended when it takes too long.

    They follow each other by the thousand, so they share a timer: if it goes off while a later
    call runs, it is set anew for that. A call that never waits needs none.
    """

    __slots__ = (
        "_attempt",
        "_cancelled",
        "_connection",
        "_due",
        "_fault",
        "_is_late",
        "_loop",
        "_task",
        "_timeout",
        "_timer",
        "_until",
    )

    def __init__(
        self,
        attempt: _Attempt,
        connection: object,
        *,
        timeout: timedelta,
        fault: Callable[[BaseException], Faulted],
    ) -> None:
        self._attempt = attempt
        self._connection = connection
        self._timeout = timeout.total_seconds()
        self._fault = fault
        self._loop = asyncio.get_running_loop()
        self._until = self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an event is applied within a task")
        self._task: asyncio.Task[Any] = task
        self._cancelled = task.cancelling()
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @coroutine
    def apply(
        self, deliveries: Sequence[Leased], *, within: float = math.inf
    ) -> Generator[object, None, Outcome]:
        """Apply events that go together within the time of a call, and within so many seconds."""
        outcome: Outcome
        running = self._attempt(deliveries, self._connection).__await__()
        try:
            waits_for = next(running)
        except StopIteration as end:  # it never waited, so that no time-out could have ended it
            outcome = end.value
            return outcome
        except BaseException as error:  # noqa: BLE001 - as below
            return self._broken_off(error)
        self._until = until = self._loop.time() + min(self._timeout, within)
        if self._due > until:
            self._set(until)
        try:
            outcome = yield from _rest(waits_for, running)
        except BaseException as error:  # noqa: BLE001 - a function may raise any of its own
            if self._was_late() and isinstance(error, asyncio.CancelledError):
                return Faulted(fault=self._late(), nature=Nature.TRANSIENT)
            return self._broken_off(error)
        finally:
            self._until = math.inf
        if self._is_late:  # which the function has taken for nothing
            self._was_late()
        return outcome

    def _late(self) -> Fault:
        return timed_out(timedelta(seconds=self._timeout))

    def _was_late(self) -> bool:
        """Tell whether the time-out has ended the call, and nobody else the task."""
        is_late, self._is_late = self._is_late, False
        return is_late and self._task.uncancel() <= self._cancelled

    def _broken_off(self, error: BaseException) -> Outcome:
        """Return what it means that a call was broken off, unless whoever runs it was."""
        if isinstance(error, GeneratorExit) or is_being_cancelled():
            raise error
        return self._fault(error)

    def _set(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = until
        self._timer = self._loop.call_at(until, self._look)

    def _look(self) -> None:
        self._timer, self._due = None, math.inf
        if self._until == math.inf:
            return
        if self._loop.time() < self._until:
            self._set(self._until)
            return
        self._is_late = True
        self._task.cancel()


def _rest(
    waits_for: object, running: Generator[object, None, Outcome]
) -> Generator[object, None, Outcome]:
    """Return what comes of a call that has begun, and waits for something."""
    try:
        yield waits_for
    except BaseException as error:  # noqa: BLE001 - a cancellation goes to where it waits
        try:
            waits_for = running.throw(error)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        return (yield from _rest(waits_for, running))
    return (yield from running)
