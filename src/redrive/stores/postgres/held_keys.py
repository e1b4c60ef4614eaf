"""Keys that somebody's open transaction holds: only who needs one waits, in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from redrive.conditions.routing import recipients
from redrive.errors import StoreError
from redrive.model.event import Event
from redrive.store import Append, Appended, Entry, Later, RoutesChanged

__all__ = ["HeldKeys", "KeyHeldError"]

_PARTS = 8
_PARTS_AT_ONCE = 4

_Name = tuple[str, ...]
"""What an event may have to wait for: its key, or its source and idempotency key, or nothing."""


class KeyHeldError(Exception):
    """A key of the entries was held for longer than was to be waited; nothing was stored."""


class Appending(Protocol):
    """Stores entries of one version of the routes, all in one transaction."""

    async def __call__(
        self, entries: Sequence[Entry], *, routes_version: int, is_patient: bool
    ) -> Append:
        """Wait for held keys for a moment only, and raise `KeyHeldError`, unless it is patient."""


class _WaitingEntry(NamedTuple):
    """An entry that waits, and who waits for it."""

    entry: Entry
    version: int
    result: Later


class HeldKeys:
    """Entries that wait for keys, each key with a queue of its own while somebody needs it.

    What is appended together is divided when one of its keys is held: what has no key is stored at
    once, the rest in parts, a part that fails in parts again, until a key stands alone. Then its
    entries wait, one after the other, and those that come meanwhile queue up behind them.
    """

    def __init__(self, append: Appending) -> None:
        self._append = append
        self.queues: dict[_Name, list[_WaitingEntry]] = {}
        """Who waits for what; while nobody does, there is no need to come here."""
        self._under_way: set[asyncio.Task[None]] = set()
        # Each part may take a connection while it meets what is held; others need some, too.
        self._parts = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def append(self, entries: Sequence[Entry], *, routes_version: int) -> Append:
        """Append what needs no held key; what does gets its result later."""
        named = [bool(_name(one.event)) for one in entries]
        late = [_name(one.event) in self.queues for one in entries] if self.queues else named
        # One without a key that was lost on its way may itself be in its way.
        appended: Append = Appended(())
        are_late = late
        for are_late in (late, named, [True] * len(entries)):
            free = [one for one, is_late in zip(entries, are_late, strict=True) if not is_late]
            with suppress(KeyHeldError):
                appended = await self._store(free, routes_version)
                break
        if isinstance(appended, RoutesChanged):
            return appended
        waiting = [one for one, is_late in zip(entries, are_late, strict=True) if is_late]
        stored, later = iter(appended.results), iter(self._enqueue(waiting, routes_version))
        return Appended(tuple(next(later if is_late else stored) for is_late in are_late))

    async def _store(
        self, entries: Sequence[Entry], routes_version: int, *, is_patient: bool = False
    ) -> Append:
        if not entries:
            return Appended(())
        return await self._append(entries, routes_version=routes_version, is_patient=is_patient)

    def _enqueue(self, entries: Sequence[Entry], version: int) -> list[Later]:
        loop = asyncio.get_running_loop()
        waiting = [_WaitingEntry(one, version, loop.create_future()) for one in entries]
        known = set(self.queues)
        for one in waiting:
            event = one.entry.event
            self.queues.setdefault(_name(event) or (event.id, "", ""), []).append(one)
        self._split([name for name in self.queues if name not in known])
        return [one.result for one in waiting]

    def _split(self, names: Sequence[_Name]) -> None:
        size = math.ceil(len(names) / _PARTS) or 1
        for start in range(0, len(names), size):
            self._start(self._work_off(names[start : start + size]))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _work_off(self, names: Sequence[_Name]) -> None:
        """Store what waits for these keys until nothing does."""
        while names:
            queues = {name: self.queues[name].copy() for name in names}
            if len(names) == 1:
                await self._wait_for(names[0])
            else:
                async with self._parts:
                    is_held = not await self._try(queues)
                if is_held:
                    self._split(names)
                    return
            for name, done in queues.items():
                del self.queues[name][: len(done)]
            names = [name for name in names if self.queues[name] or self.queues.pop(name)]

    async def _try(self, queues: Mapping[_Name, Sequence[_WaitingEntry]]) -> bool:
        """Store entries together, and tell each caller; false if one of their keys is held."""
        batch = [one for queue in queues.values() for one in queue]
        try:
            await self._settle(batch, is_patient=False)
        except KeyHeldError:
            return False
        except StoreError as error:
            _fail(batch, error)
        except Exception:  # noqa: BLE001 - one of them cannot be stored: it must fail alone
            return False
        return True

    async def _wait_for(self, name: _Name) -> None:
        """Store the entries of a key one after the other, each in a transaction of its own."""
        for one in self.queues[name].copy():
            try:
                await self._settle([one], is_patient=True)
            except StoreError as error:
                # Whoever has come meanwhile would wait as long again, for the same.
                _fail(self.queues[name], error)
                self.queues[name].clear()
                return
            except Exception as error:  # noqa: BLE001 - its caller hears of it
                _fail([one], error)

    async def _settle(self, batch: Sequence[_WaitingEntry], *, is_patient: bool) -> None:
        """Store entries by the routes that there are, and hand out their results."""
        entries, version = [one.entry for one in batch], min(one.version for one in batch)
        while isinstance(
            appended := await self._store(entries, version, is_patient=is_patient), RoutesChanged
        ):
            routes, version = appended.routes, appended.routes.version
            entries = [
                msgspec.structs.replace(one, destinations=recipients(routes, one.event))
                for one in entries
            ]
        for one, result in zip(batch, appended.results, strict=True):
            if not one.result.done() and not isinstance(result, asyncio.Future):
                one.result.set_result(result)


def _name(event: Event[msgspec.Raw]) -> _Name:
    if event.key is not None:
        return (event.key,)
    if event.idempotency_key is not None:
        return (event.source, event.idempotency_key)
    return ()


def _fail(batch: Sequence[_WaitingEntry], error: Exception) -> None:
    for one in batch:
        if not one.result.done():
            one.result.set_exception(error)
