"""The port to threads: synchronous handlers, duties with a loop of their own, and the hard end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol, TypeVar

__all__ = [
    "WEDGED",
    "Duty",
    "Executor",
    "RunningDuty",
    "StillRunning",
    "ThreadExecutor",
    "disregard",
    "end_process",
]

WEDGED = 70
"""The exit code of a process that had to end because handlers in it would not."""
_FLUSH_SECONDS = 1.0
_FAREWELL_SECONDS = 20.0
_log = logging.getLogger("redrive")

T = TypeVar("T")
Duty = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Work that goes on until the event it is given is set."""


class StillRunning(asyncio.CancelledError):
    """Nobody waits any more for a function in a thread, and it goes on all the same."""


class RunningDuty(Protocol):
    """A duty under way."""

    async def stop(self) -> None:
        """Ask it to end, and return when it has, or when it takes far too long."""


class Executor(Protocol):
    """Where work runs that must not share the handlers' event loop."""

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking function; it sees the caller's context variables."""

    def start(self, duty: Duty, *, name: str) -> RunningDuty:
        """Run a duty that a blocked event loop here cannot hold up."""


def disregard(future: asyncio.Future[Any]) -> None:
    """Say that nobody waits for its end any more: an error of it is no news to anybody."""
    future.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())


class ThreadExecutor:
    """Threads that never keep the process from ending, made when needed and used again.

    There is a thread for every caller, so one that is about to release what others wait for never
    waits for a thread itself. Those that are idle end when nobody has the executor any more.
    """

    def __init__(self) -> None:
        self._begin()
        _executors.add(self)

    def _begin(self) -> None:
        self._crew = _Crew()
        weakref.finalize(self, self._crew.jobs.put, None).atexit = False

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                answer = _Answer(future, result=context.run(function))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits
                answer = _Answer(future, error=error)
            try:
                loop.call_soon_threadsafe(answer.give)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        self._crew.take(job)
        return future

    def start(self, duty: Duty, *, name: str) -> RunningDuty:
        return _DutyThread(duty, name=name, executor=self)


class _Crew:
    """The threads of an executor, which know nothing of it."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """What is to be done; `None` is the end."""
        self._lock = threading.Lock()
        self._idle = 0

    def take(self, job: Callable[[], None]) -> None:
        """Have a thread do it at once: one that is idle, or a new one."""
        with self._lock:
            needs_thread = self._idle == 0
            if not needs_thread:
                self._idle -= 1
        self.jobs.put(job)
        if needs_thread:
            threading.Thread(target=self._work, name="redrive-handler", daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()
            del job  # who waits for the next one is not to hold on to what it was about
            with self._lock:
                self._idle += 1
        self.jobs.put(None)  # for the next one


_executors: weakref.WeakSet[ThreadExecutor] = weakref.WeakSet()


def _forget_parents() -> None:
    """After a fork: the child has none of the threads, and the lock may be held."""
    for one in list(_executors):
        one._begin()  # noqa: SLF001 - this module's own


os.register_at_fork(after_in_child=_forget_parents)


class _Answer:
    def __init__(
        self,
        future: asyncio.Future[Any],
        *,
        result: object = None,
        error: BaseException | None = None,
    ) -> None:
        self._future = future
        self._result = result
        self._error = error

    def give(self) -> None:
        if self._future.done():
            return
        if self._error is None:
            self._future.set_result(self._result)
        elif isinstance(self._error, StopIteration):
            self._future.set_exception(RuntimeError("the handler raised StopIteration"))
        else:
            self._future.set_exception(self._error)


class _DutyThread:
    def __init__(self, duty: Duty, *, name: str, executor: Executor) -> None:
        self._duty = duty
        self._executor = executor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        await self._executor.submit(self._ready.wait)
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await self._executor.submit(lambda: self._thread.join(_FAREWELL_SECONDS))
        if self._thread.is_alive():  # whoever stops must end, whatever this one waits for
            _log.warning(
                "The thread %s has not ended within %.0f s of being told; it is left behind.",
                self._thread.name,
                _FAREWELL_SECONDS,
            )

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._duty(self._stop)


def end_process(code: int = WEDGED) -> NoReturn:
    """End this process at once, whatever its handlers do; what it has printed is kept."""
    with contextlib.suppress(RuntimeError):  # no thread to be had: then without the last words
        # A blocked thread may hold the lock of a stream, so wait for the flush only briefly.
        flushing = threading.Thread(target=_flush, name="redrive-flush", daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
