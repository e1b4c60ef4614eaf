"""Readings: what takes long to read of the whole store is read once for all who look."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from redrive.clock import Clock
from redrive.web.api import REQUEST_SECONDS

if TYPE_CHECKING:
    from redrive.operations import Operations

__all__ = ["Look", "Readings"]

_WHOLE = frozenset(
    ("status", "gates", "groups", "lanes", "plan_replay", "schedules", "tenants", "auto_replays")
)
"""The operations that look at the whole store, which take the longer the more there is."""
_QUICK_SECONDS = 0.1
"""What takes no longer is never kept, and so long a visit waits in all for what is newer."""
_SHARE = 9
"""For each second that a reading took it is kept for so many."""
_LONGEST_SECONDS = 60.0
_GRACE_SECONDS = 30.0
"""So much longer a reading may be shown while a new one is made."""
_MOST = 200


class _Reading(NamedTuple):
    """What was read, as of when; for how long it does, and until when it is better than nothing."""

    value: object
    at: datetime
    took: float
    until: float

    @property
    def is_quick(self) -> bool:
        return self.took <= _QUICK_SECONDS

    @property
    def end(self) -> float:
        return self.until + _GRACE_SECONDS


class _Question:
    """Something that is asked of the store: what was read last, and what is being read."""

    def __init__(self) -> None:
        self.last: _Reading | None = None
        self.next: asyncio.Task[_Reading] | None = None


class Readings:
    """Keeps what took long to read for a while, until somebody acts.

    Whoever looks after that while is shown the same once more if a new reading takes long; but
    nothing that is older than a minute and a half, and nothing old once a new one has failed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, _Question] = OrderedDict()
        self._under_way: set[asyncio.Task[_Reading]] = set()

    def look(self) -> Look:
        """Return how one visit looks at the store."""
        return Look(self, self._clock)

    def forget(self) -> None:
        """Read everything anew from now on."""
        self._known.clear()

    async def end(self) -> None:
        """Give up what is being read."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def read(
        self, key: Hashable, read: Callable[[], Awaitable[object]], patience: float
    ) -> _Reading:
        """Return what was read, by whoever asked first; others who ask meanwhile wait for it.

        `patience` is for how many seconds they wait, if there is another that does.
        """
        asked = self._known.setdefault(key, _Question())
        self._known.move_to_end(key)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        last, now = asked.last, self._clock.monotonic()
        if last is not None and now < last.until:
            return last
        task = asked.next or self._begin(asked, read)
        if last is None or now >= last.end:
            return await asyncio.shield(task)
        # What took long will take long again.
        has_come = last.is_quick and await self._is_done(task, patience)
        return task.result() if has_come else last

    async def _is_done(self, task: asyncio.Task[_Reading], patience: float) -> bool:
        if patience <= 0:
            return task.done()
        alarm = asyncio.ensure_future(self._clock.sleep(patience))
        try:
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
        return task.done()

    def _begin(
        self, asked: _Question, read: Callable[[], Awaitable[object]]
    ) -> asyncio.Task[_Reading]:
        """Begin to read; it goes on when who has asked first does not wait for it."""
        asked.next = task = asyncio.create_task(self._read(asked, read))
        self._under_way.add(task)
        task.add_done_callback(self._is_over)
        return task

    def _is_over(self, task: asyncio.Task[_Reading]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # it is told to who waits for it, if anybody does

    async def _read(self, asked: _Question, read: Callable[[], Awaitable[object]]) -> _Reading:
        at, begun = self._clock.now(), self._clock.monotonic()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                value = await read()
        except BaseException:
            asked.last = None
            raise
        else:
            end = self._clock.monotonic()
            asked.last = _Reading(value, at, end - begun, end + _kept_for(end - begun))
            return asked.last
        finally:
            asked.next = None


def _kept_for(took: float) -> float:
    return 0.0 if took <= _QUICK_SECONDS else min(_LONGEST_SECONDS, _SHARE * took)


class Look:
    """How one visit looks at the store."""

    def __init__(self, readings: Readings, clock: Clock) -> None:
        self._readings = readings
        self._clock = clock
        self._patience = _QUICK_SECONDS
        self._oldest: datetime | None = None

    def over(self, operations: Operations) -> Operations:
        """Return the same operations, of which those that take long share what they have read."""
        # It has all of the names.
        return cast("Operations", _Shared(operations, self))

    def as_of(self, now: datetime) -> datetime:
        """Return of when the oldest is that was looked at, or that it is of now."""
        return now if self._oldest is None else min(now, self._oldest)

    async def read(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> object:
        """Return what a question is answered with."""
        begun = self._clock.monotonic()
        reading = await self._readings.read(key, read, self._patience)
        self._patience -= self._clock.monotonic() - begun
        self._oldest = self.as_of(reading.at)
        return reading.value


class _Shared:
    """Operations whose readings of the whole store are shared."""

    def __init__(self, operations: Operations, look: Look) -> None:
        self._operations = operations
        self._look = look

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever operation it is
        operation = getattr(self._operations, name)
        if name not in _WHOLE:
            return operation

        def shared(*given: Hashable, **named: Hashable) -> Awaitable[object]:
            key = (name, given, tuple(sorted(named.items())))
            return self._look.read(key, lambda: operation(*given, **named))

        return shared
