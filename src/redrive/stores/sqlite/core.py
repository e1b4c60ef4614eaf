"""The threads and the file that the roles of the store share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from redrive.clock import Clock
from redrive.stores.sealed import READ_ENCRYPTION, Codec
from redrive.stores.sql.store import Job, SqlStore
from redrive.stores.sqlite.connection import Place, connect, let_go, translated
from redrive.stores.sqlite.dialect import rewritten
from redrive.stores.sqlite.forking import undisturbed
from redrive.stores.sqlite.schema import migrate
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.stores.sqlite.threads import Threads

__all__ = ["Core"]

T = TypeVar("T")
_TICKS = (0.002, 0.05)
"""How many seconds who waits lets pass between two looks: at first, and at most."""

_VERSION = "SELECT value FROM redrive_counters WHERE name = 'routes_version'"
# What a destination is like is told by its document; a name that looks the same costs a look.
_OPTIONS = """
SELECT ifnull(max(instr(document, '"dead_letter"') > 0), 0),
       ifnull(max(instr(document, '"auto_replay":{') > 0), 0)
FROM redrive_destinations
"""


class _Options(NamedTuple):
    """Whether any destination has an option that gives a duty something to do."""

    version: int = -1
    may_shed: bool = True
    has_auto_replays: bool = True


class Core(SqlStore):
    """An open file: one thread that writes, two that read, and notifications for who waits."""

    def __init__(
        self, path: Path, *, clock: Clock, history: int, threads: Threads, codec: Codec
    ) -> None:
        self.path = path.absolute()  # once: the working directory may change
        self.schema_version = 0
        self.codec = codec
        self._clock = clock
        self._history = history
        self._threads = threads
        self._writer = threads.writer(self.path)
        self._reader = threads.reader(self.path)
        self._surveyor = threads.reader(self.path)
        self._watcher: apsw.Connection | None = None
        self._place: Place | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._notified = 0
        self._seen = (0, 0)
        self._tick = _TICKS[1]
        self._one_at_a_time = asyncio.Lock()
        self._options = _Options()

    async def open(self) -> None:
        if self._watcher is not None:
            return
        self._watcher = await self._threads.run(self._prepare)
        self._place = self._writer.place = Place(self.path)
        self._writer.start()
        self._reader.start()
        self._surveyor.start()

    def _prepare(self) -> apsw.Connection:
        connection = connect(self.path)
        try:
            with translated(self.path):
                self.schema_version = migrate(connection, name=str(self.path))
                self.codec.learn(connection.execute(rewritten(READ_ENCRYPTION)).get)
        except BaseException:
            let_go(connection)
            raise
        return connection

    async def close(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await self._threads.run(self._writer.stop)
            await self._threads.run(self._reader.stop)
            await self._threads.run(self._surveyor.stop)
            let_go(watcher)

    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        self._waiters.append(waiter)
        notified = asyncio.ensure_future(event.wait())
        watching = asyncio.ensure_future(self._watch(at_most.total_seconds(), since))
        try:
            await asyncio.wait([notified, watching], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            notified.cancel()
            watching.cancel()
            self._waiters.remove(waiter)

    def mark(self) -> object:
        return self._changes()

    def wake(self) -> None:
        self._notify()

    async def _watch(self, seconds: float, since: object) -> None:
        """Return when something has changed, or at the end.

        One task for all looks: a task for each would be most of what an idle worker costs.
        """
        while seconds > 0 and self._changes() == (since or self._seen):
            step = min(seconds, self._tick)
            self._tick = min(2 * self._tick, _TICKS[1])
            await self._clock.sleep(step)
            seconds -= step

    async def _read(
        self,
        job: Job[T],
        *,
        is_prompt: bool = False,  # noqa: ARG002 - a file does not fall silent
        is_wide: bool = False,
    ) -> T:
        now = self._clock.now()
        reader = self._surveyor if is_wide else self._reader
        return await reader.call(lambda c: finish(job(SqliteSession(c, now, self.codec), now)))

    async def _write(
        self,
        job: Callable[[SqliteSession, datetime], Awaitable[T]],
        *,
        notifies: bool = False,
        is_prompt: bool = False,  # noqa: ARG002 - who waits for the write lock waits a bounded time
    ) -> T:
        def run(connection: apsw.Connection) -> T:
            now = self._clock.now()  # now that it holds the write lock
            return finish(job(SqliteSession(connection, now, self.codec), now))

        result = await self._writer.call(run)
        if notifies:
            self._notify()
        return result

    def _notify(self) -> None:
        self._notified += 1
        for loop, event in self._waiters:
            loop.call_soon_threadsafe(event.set)

    async def _idle(self, duty: str) -> datetime | None:
        if duty not in _Options._fields:
            return None  # to look costs little
        now = self._clock.now()
        self._options = await self._reader.call(lambda one: _options(one, self._options))
        return None if getattr(self._options, duty) else now

    def _look_anew(self) -> None:
        self._seen = self._changes()

    def _look_soon(self) -> None:
        """Look more often for a while: where there was work, more is likely to come."""
        self._tick = _TICKS[0]

    def _changes(self) -> tuple[int, int]:
        """Return what differs once anybody, in this process or another, may have added work."""
        if self._watcher is None:
            return self._notified, -1
        with translated(self.path), undisturbed():
            return self._notified, int(self._watcher.execute("PRAGMA data_version").get)


def _options(connection: apsw.Connection, known: _Options) -> _Options:
    """Return what some destination has, without looking at all of them unless one has changed."""
    version = int(connection.execute(_VERSION).get)
    if version == known.version:
        return known
    return _Options(version, *map(bool, connection.execute(_OPTIONS).get))
