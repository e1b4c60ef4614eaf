"""I11: who reads the log on sees every event once, in order, and so does a read model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from redrive.model.event import EventId
from redrive.model.position import LOG_START
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import GivenUp, Looked, Modelled, Read, Record, Served, Wanted

__all__ = ["LogReadWhole", "ModelRight", "ReadersKeep"]

_MOST_NAMED = 5


class LogReadWhole(Check):
    """A reader who goes on from the last position gets each event once, and keys in order.

    At the end it has had everything that was ever stored, whatever was committed late.
    """

    name = "I11 projection"

    def __init__(self) -> None:
        self._read: dict[EventId, None] = {}
        self._last = LOG_START
        self._versions: dict[str, int] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Read):
            yield from self._take(record)
        elif isinstance(record, Looked) and record.is_final:
            missed = [one for one in ledger.events if one not in self._read]
            if missed:
                named = ", ".join(missed[:_MOST_NAMED])
                yield f"{len(missed)} events of the log were never read: {named}"

    def _take(self, read: Read) -> Iterator[str]:
        if read.event_id in self._read:
            yield f"{read.event_id} was read twice"
        if read.position <= self._last:
            yield f"{read.event_id} was read at {read.position}, after {self._last}"
        self._read[read.event_id] = None
        self._last = read.position
        if read.key is not None and read.version is not None:
            before = self._versions.get(read.key, 0)
            if read.version <= before:
                yield f"version {read.version} of {read.key} was read after {before}"
            self._versions[read.key] = read.version


class ModelRight(Check):
    """A read model is what a recount of the log gives: nothing twice, keys in order, none missing.

    What is not in it lies behind the checkpoint, is a delivery, or was given up by a person.
    """

    name = "I11 read model"

    def __init__(self) -> None:
        self._given_up: dict[tuple[str, EventId], None] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, GivenUp):
            self._given_up[record.projection, record.event_id] = None
        elif isinstance(record, Modelled) and not record.is_reset:
            for what in (*self._compare(record), *self._follow(record), *_finish(record)):
                yield f"{record.projection}: {what}"
        elif isinstance(record, Modelled) and record.is_final:
            yield f"{record.projection}: it was reset, and never began anew"

    def _compare(self, model: Modelled) -> Iterator[str]:
        """Look at each event by itself."""
        applied = Counter(model.applied)
        wanted = {one.event_id for one in model.wanted}
        yield from (f"{one} was applied twice" for one, times in applied.items() if times > 1)
        yield from (f"{one} was applied, and is not wanted" for one in applied.keys() - wanted)
        for one in model.wanted:
            is_past = model.is_past(one)
            if one.event_id in applied and not is_past:
                yield f"{one.event_id} was applied, and the checkpoint is before it"
            if one.event_id in applied and one.event_id in model.unfinished:
                yield f"{one.event_id} was applied, and is still to be"
            if is_past and not self._is_accounted_for(model, one, applied):
                yield f"{one.event_id} is before the checkpoint, and was never applied"

    def _is_accounted_for(self, model: Modelled, one: Wanted, applied: Counter[EventId]) -> bool:
        return (
            one.event_id in applied
            or one.event_id in model.unfinished
            or (model.projection, one.event_id) in self._given_up
        )

    def _follow(self, model: Modelled) -> Iterator[str]:
        """Look at the events of each key, one after the other."""
        places = {one.event_id: one for one in model.wanted}
        last: dict[str, Wanted] = {}
        for event_id in model.applied:
            one = places.get(event_id)
            may_be_late = not model.keeps_order and event_id in model.handed_over
            if one is None or one.key is None or may_be_late:
                continue
            before = last.get(one.key)
            if before is not None and before.position > one.position:
                yield f"{event_id} of {one.key} was applied after {before.event_id}"
            last[one.key] = one
        for one in model.wanted if model.keeps_order else ():
            ahead = last.get(one.key or "")
            if ahead and one.event_id in model.unfinished and one.position < ahead.position:
                yield f"{ahead.event_id} of {one.key} has passed {one.event_id}, which waits"


class ReadersKeep(Check):
    """Who reads a projection never loses what they had, whichever version they are given.

    Nobody makes the version anew that readers have; what one version lacks, a person gave up.
    """

    name = "I11 readers"

    def __init__(self) -> None:
        self._had: dict[str, frozenset[EventId]] = {}
        self._given_up: dict[EventId, None] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, GivenUp):
            self._given_up[record.event_id] = None
        elif isinstance(record, Served):
            had = self._had.get(record.projection, frozenset())
            lost = sorted(had - record.events - self._given_up.keys())
            if lost:
                named = ", ".join(lost[:_MOST_NAMED])
                yield f"{record.projection}: its readers have lost {len(lost)} events: {named}"
            self._had[record.projection] = record.events


def _finish(model: Modelled) -> Iterator[str]:
    """Look at how far it is."""
    behind = sum(not model.is_past(one) for one in model.wanted)
    if model.is_told_caught_up != (not behind):
        word = "caught up" if model.is_told_caught_up else "not caught up"
        yield f"it is told to be {word}, and is {behind} events behind"
    if model.is_final and (behind or model.unfinished):
        yield f"{behind} events are not read in the end, {len(model.unfinished)} not finished"
