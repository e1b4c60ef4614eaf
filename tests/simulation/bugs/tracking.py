"""Planted bugs of what becomes of events that are tracked."""

# ruff: noqa: SLF001 - bugs are planted inside

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from redrive.errors import StoreError
from redrive.journal import draining
from redrive.journal.draining import Drained
from redrive.journal.line import JournalLine, TriedRecord
from redrive.model.event import EventId
from redrive.store import LineSeal, Store, Tried
from redrive.tracking.figures import End
from redrive.tracking.item import Flight, Item
from redrive.tracking.keeper import Keeper
from redrive.tracking.sender import Sender
from redrive.tracking.tracker import Tracker
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

_write = Keeper._write
_give = draining._give
_make_room = Tracker._make_room
_close_part = Sender._close_part


async def _believe(self: Keeper, records: Sequence[Any]) -> str:
    """Count what goes to the journal as there before it is written."""
    await _write(self, records)
    return ""


async def _give_anew(
    path: Path, batch: Sequence[JournalLine], store: Store, seal: LineSeal | None
) -> Drained:
    """Give what was given before, as something new."""
    done = await _give(path, batch, store, seal)
    tried = [one.record.tried for one in batch if isinstance(one.record, TriedRecord)]
    await store.take_over([_anew(one) for one in tried])
    return done


def _anew(tried: Tried) -> Tried:
    event = msgspec.structs.replace(tried.event, id=EventId(f"{tried.event.id}-again"))
    return msgspec.structs.replace(tried, event=event)


def _make_room_quietly(self: Tracker) -> bool:
    if self.terms.on_full != "drop_oldest":
        return _make_room(self)
    self._items.popleft()
    self._books.end(End.SENT)
    return True


def _close_kindly(self: Sender, flight: Flight, name: str, end: End, why: str) -> None:
    """Count what the filter does not keep as sent."""
    _close_part(self, flight, name, End.SENT if why == "filtered" else end, why)


def _overtakes_nothing(*_given: object) -> bool:
    return False


def _spill_at_once(self: Sender, items: list[Item], reason: str) -> None:
    """Spill what found no room beside what is older, and still to be handed over."""

    async def spill() -> None:
        try:
            await self._spill(items, reason)
        finally:
            self._spilling -= 1
            self._progress.set()

    self._spilling += 1
    self._tasks_of_the_bug = asyncio.create_task(spill())  # type: ignore[attr-defined]  # kept alive


async def _drain_at_any_time(self: Sender) -> None:
    """Drain though something older is still on its way."""
    with suppress(StoreError):
        await self._drain(self._journal.folder)
        self._buffer.spilled.clear()


def _bug(name: str, *patches: tuple[Any, str, Any]) -> Bug:
    return Bug(name, is_tracking=True, patches=patches)


BUGS: tuple[Bug, ...] = (
    _bug("settled before spilled", (Keeper, "_write", _believe)),
    _bug("drained twice", (draining, "_give", _give_anew)),
    _bug("dropped but not counted", (Tracker, "_make_room", _make_room_quietly)),
    _bug("filtered but not counted", (Sender, "_close_part", _close_kindly)),
    _bug("an ordered destination overtaken", (Keeper, "_overtakes", _overtakes_nothing)),
    _bug("spilled beside what is older", (Sender, "_spill_soon", _spill_at_once)),
    _bug("drained beside what is older", (Sender, "_drain_once", _drain_at_any_time)),
)
