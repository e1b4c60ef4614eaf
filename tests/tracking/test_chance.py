"""Walks by chance find nothing, and find each of the bugs that are planted."""

# ruff: noqa: SLF001 - bugs are planted inside

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive.journal import draining
from redrive.journal.draining import Drained
from redrive.journal.line import JournalLine, TriedRecord
from redrive.model.event import EventId
from redrive.store import Store, Tried
from redrive.tracking.figures import End
from redrive.tracking.item import Flight
from redrive.tracking.keeper import Keeper
from redrive.tracking.sender import Sender
from redrive.tracking.tracker import Tracker
from tests.tracking.chance import take

_SEEDS = 12
_MOST_SEEDS = 80


@pytest.mark.parametrize("seed", range(_SEEDS))
async def test_whatever_happens_everything_arrives_once_or_is_counted(
    seed: int, tmp_path: Path
) -> None:
    await take(seed, tmp_path)


def settled_before_spilled(patch: pytest.MonkeyPatch) -> None:
    """What goes to the journal is counted as there before it is written."""
    write = Keeper._write

    async def believe(keeper: Keeper, records: Sequence[Any]) -> str:
        await write(keeper, records)
        return ""

    patch.setattr(Keeper, "_write", believe)


def drained_twice(patch: pytest.MonkeyPatch) -> None:
    """A drain that is begun again gives what it gave before, as something new."""
    give = draining._give

    async def give_anew(path: Path, batch: Sequence[JournalLine], store: Store) -> Drained:
        done = await give(path, batch, store)
        tried = [one.record.tried for one in batch if isinstance(one.record, TriedRecord)]
        await store.take_over([_anew(one) for one in tried])
        return done

    patch.setattr(draining, "_give", give_anew)


def _anew(tried: Tried) -> Tried:
    event = msgspec.structs.replace(tried.event, id=EventId(f"{tried.event.id}-again"))
    return msgspec.structs.replace(tried, event=event)


def dropped_but_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The oldest makes room, and nobody is told."""
    make_room = Tracker._make_room

    def make_room_quietly(tracker: Tracker) -> bool:
        if tracker.terms.on_full != "drop_oldest":
            return make_room(tracker)
        tracker._items.popleft()
        tracker._books.end(End.SENT)
        return True

    patch.setattr(Tracker, "_make_room", make_room_quietly)


def filtered_but_not_counted(patch: pytest.MonkeyPatch) -> None:
    """What the filter does not keep is counted as sent."""
    close = Sender._close_part

    def close_kindly(sender: Sender, flight: Flight, name: str, end: End, why: str) -> None:
        close(sender, flight, name, End.SENT if why == "filtered" else end, why)

    patch.setattr(Sender, "_close_part", close_kindly)


def an_ordered_destination_overtaken(patch: pytest.MonkeyPatch) -> None:
    """What keeps an order does not wait for what is in the journal."""
    patch.setattr(Keeper, "_overtakes", lambda *_: False)


def overflow_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is newer is written before what found no room."""

    async def at_once(_: Sender) -> None:
        return None

    patch.setattr(Sender, "_overflow_is_spilled", at_once)


def drained_too_early(patch: pytest.MonkeyPatch) -> None:
    """A sender that follows another forgets what that left in the journal."""
    finish = Keeper.finish

    async def forget(keeper: Keeper) -> None:
        await finish(keeper)
        keeper._spilled.clear()

    patch.setattr(Keeper, "finish", forget)


@pytest.mark.parametrize(
    "bug",
    [
        settled_before_spilled,
        drained_twice,
        dropped_but_not_counted,
        filtered_but_not_counted,
        an_ordered_destination_overtaken,
        overflow_forgotten,
        drained_too_early,
    ],
    ids=lambda bug: bug.__name__,
)
async def test_each_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    for seed in range(_MOST_SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            try:
                await take(seed, tmp_path)
            except AssertionError:
                return
    pytest.fail(f"{_MOST_SEEDS} walks found nothing")
