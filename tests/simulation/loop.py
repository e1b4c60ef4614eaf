"""An event loop in which time is virtual and order is chance, and both repeat with the seed.

Everything that runs belongs to a strand, by its context: a thread of some process. A dead strand
takes no further step, and none of its `finally` runs; a stopped one takes them later.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import resource
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar

__all__ = ["Deadlock", "Livelock", "SimulationLoop", "Strand", "current_strand"]

T = TypeVar("T")

_MOST_STEPS_AT_ONCE = 50_000
_MOST_STEPS = 20_000_000
"""Many hours of virtual time; a run that needs more does not end."""
_TIDIES_EVERY = 200_000
_MOST_KILOBYTES = 1_000_000
"""What a process that runs seeds may hold in memory: four of them must fit beside each other."""
_MOST_CLOSINGS = 20


class Deadlock(Exception):  # noqa: N818 - it is what has happened
    """Nothing is ready and nothing is planned, so nothing will ever happen again."""


class Livelock(Exception):  # noqa: N818 - it is what has happened
    """Steps follow each other without end, or take ever more memory."""


class Strand:
    """A thread of a process: all that runs in contexts which name it shares its fate."""

    __slots__ = ("_held", "_is_dead", "_is_stopped", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_dead = False
        self._is_stopped = False
        self._held: list[asyncio.Handle] = []

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    def context(self) -> Context:
        """Return a new context in which everything belongs to it."""
        context = Context()
        context.run(_strand.set, self)
        return context

    def die(self) -> None:
        """Take no further step."""
        self._is_dead = True

    def stop(self) -> None:
        """Take no step until `go_on`."""
        self._is_stopped = True

    def go_on(self, loop: SimulationLoop) -> None:
        self._is_stopped = False
        held, self._held = self._held, []
        loop.make_ready(held)

    def is_held(self, handle: asyncio.Handle) -> bool:
        """Tell whether a step must not be taken, and keep it: for later, or for good.

        A step thrown away would let Python close what it belongs to, and run its `finally`.
        """
        if self._is_dead or self._is_stopped:
            self._held.append(handle)
            return True
        return False


_strand: ContextVar[Strand | None] = ContextVar("strand", default=None)


def current_strand() -> Strand | None:
    return _strand.get()


class _Task(asyncio.Task[T]):
    """A task whose place in a set does not depend on where it lies in memory.

    Its number comes first: asyncio puts it in a set while it is made.
    """

    strand: Strand | None = None

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, number: int, **options: Any) -> None:  # noqa: ANN401 - as asyncio has it
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[T]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulationLoop(asyncio.SelectorEventLoop):
    """Takes the steps that are ready in an order drawn from the seed; waits cost nothing.

    `steps` counts them. `unhandled` are exceptions that nobody awaited.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.steps = 0
        self.unhandled: list[str] = []
        self._chance = Random(f"order of {seed}").random  # noqa: S311 - a simulation
        self._virtual = 0.0
        self._quiet_steps = 0
        self._numbered = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._ready: list[asyncio.Handle] = []
        self._stopping: bool
        self._scheduled: list[asyncio.TimerHandle]
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # any coroutine will do
        self.set_exception_handler(self._note_unhandled)

    def time(self) -> float:
        return self._virtual

    def _write_to_self(self) -> None:
        """Wake nobody: there is no other thread."""

    def create_future(self) -> asyncio.Future[Any]:
        future: _Future[Any] = _Future(loop=self)
        self._numbered += 1
        future.number = self._numbered
        return future

    def make_ready(self, handles: list[asyncio.Handle]) -> None:
        self._ready += handles

    async def pause(self, seconds: float) -> None:
        """Return after that much virtual time, whatever the clocks of processes say."""
        future = self.create_future()
        timer = self.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    def tasks_of(self, strand: Strand) -> int:
        """Count the tasks of a strand that are not done."""
        return sum(getattr(task, "strand", None) is strand for task in asyncio.all_tasks(self))

    def discard(self) -> None:
        """Close every task that is left, so that nothing of this run reaches the next one."""
        left = sorted(asyncio.all_tasks(self), key=hash)
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - dropped on purpose
            coroutine: Any = task.get_coro()
            for _ in range(_MOST_CLOSINGS):
                # A coroutine that awaits in its `finally` has to be closed once more.
                with contextlib.suppress(BaseException):
                    coroutine.close()
                    break
        self._ready.clear()
        self._scheduled.clear()
        self._tasks.clear()
        self.close()

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        **options: Any,  # noqa: ANN401 - as asyncio has it
    ) -> asyncio.Task[T]:
        self._numbered += 1
        task = _Task(coroutine, number=self._numbered, loop=loop, **options)
        context: Context | None = options.get("context")
        task.strand = _strand.get() if context is None else context.get(_strand)
        self._tasks.append(task)
        return task

    def _note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unhandled.append(f"{context.get('message')}: {error!r}")

    def _run_once(self) -> None:
        """Take steps until told to stop; a call for each would cost as much as many of them."""
        ready, chance = self._ready, self._chance
        while not self._stopping:
            if not ready:
                self._let_time_pass()
            index = int(chance() * len(ready))
            handle = ready[index]
            ready[index] = ready[-1]
            ready.pop()
            if handle._cancelled:  # noqa: SLF001 - this is an event loop
                continue
            strand = handle._context.get(_strand)  # type: ignore[attr-defined]  # noqa: SLF001 - as above
            if strand is not None and strand.is_held(handle):
                continue
            self.steps += 1
            self._quiet_steps += 1
            if self._quiet_steps > _MOST_STEPS_AT_ONCE:
                raise Livelock(
                    f"{self._quiet_steps} steps at {self._virtual:.6f} s: {handle!r:.300}"
                )
            if self.steps % _TIDIES_EVERY == 0:
                self._tidy()
            handle._run()  # noqa: SLF001 - as above

    def _tidy(self) -> None:
        """Let go of what nobody can reach, and give up a run that has no end.

        Tasks that are not done stay: one that is collected runs its `finally`.
        """
        if self.steps >= _MOST_STEPS:
            raise Livelock(f"no end after {self.steps} steps and {self._virtual:.0f} s")
        self._tasks = [task for task in self._tasks if not task.done()]
        gc.collect()
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if held > _MOST_KILOBYTES:
            raise Livelock(f"{held // 1000} MB are held after {self.steps} steps")

    def _let_time_pass(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:  # noqa: SLF001 - as above
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        if not scheduled:
            raise Deadlock(f"nothing can happen any more at {self._virtual:.6f} s")
        if scheduled[0].when() > self._virtual:
            self._virtual, self._quiet_steps = scheduled[0].when(), 0
        while scheduled and scheduled[0].when() <= self._virtual:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - as above
            self._ready.append(handle)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
