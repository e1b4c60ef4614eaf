"""Readings: what takes long to read of the whole store is read once for all who look."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

from redrive.clock import Clock

if TYPE_CHECKING:
    from redrive.operations import Operations

__all__ = ["Readings"]

_WHOLE = frozenset(
    ("status", "gates", "groups", "lanes", "plan_replay", "schedules", "tenants", "auto_replays")
)
"""The operations that look at the whole store, which take the longer the more there is."""
_QUICK_SECONDS = 0.1
"""What takes no longer is never kept."""
_SHARE = 9
"""For each second that a reading took it is kept for so many."""
_LONGEST_SECONDS = 60.0
_MOST = 200


class _Reading:
    """What was read last, and until when it does."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.number = 0
        self.value: object = None
        self.until = 0.0


class Readings:
    """Keeps what took long to read for a while, until somebody acts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, _Reading] = OrderedDict()

    def over(self, operations: Operations) -> Operations:
        """Return the same operations, of which those that take long share what they have read."""
        # It has all of the names.
        return cast("Operations", _Shared(operations, self))

    def forget(self) -> None:
        """Read everything anew from now on."""
        self._known.clear()

    async def read(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> object:
        """Return what was read, by whoever asked first; others who ask meanwhile wait for it."""
        one = self._known.setdefault(key, _Reading())
        self._known.move_to_end(key)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        seen = one.number
        async with one.lock:
            begun = self._clock.monotonic()
            if one.number == seen and begun >= one.until:
                one.value = await read()
                one.number += 1
                one.until = self._clock.monotonic() + _kept_for(self._clock.monotonic() - begun)
        return one.value


def _kept_for(took: float) -> float:
    return 0.0 if took <= _QUICK_SECONDS else min(_LONGEST_SECONDS, _SHARE * took)


class _Shared:
    """Operations whose readings of the whole store are shared."""

    def __init__(self, operations: Operations, readings: Readings) -> None:
        self._operations = operations
        self._readings = readings

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever operation it is
        operation = getattr(self._operations, name)
        if name not in _WHOLE:
            return operation

        def shared(*given: Hashable, **named: Hashable) -> Awaitable[object]:
            key = (name, given, tuple(sorted(named.items())))
            return self._readings.read(key, lambda: operation(*given, **named))

        return shared
