"""What the picture is drawn from: the latest reading, the last minute, and what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

import msgspec

from redrive.model.gate import GateFigures, Open
from redrive.store import (
    DestinationFigures,
    Figures,
    Group,
    LaneFigures,
    ProjectionFigures,
    Replay,
)

__all__ = ["MINUTE", "Mark", "Reading", "Sort", "View"]

MINUTE = timedelta(minutes=1)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The system at one instant, as `Operations` tells it."""

    figures: Figures
    gates: tuple[GateFigures, ...] = ()
    groups: tuple[Group, ...] = ()
    lanes: tuple[LaneFigures, ...] = ()
    replays: tuple[Replay, ...] = ()
    projections: tuple[ProjectionFigures, ...] = ()


class Sort(StrEnum):
    """What the destinations are sorted by."""

    TROUBLE = "trouble"
    NAME = "name"
    PENDING = "pending"
    FAILED = "failed"
    RATE = "rate"

    @property
    def next(self) -> Sort:
        """The one that comes after this one, in a circle."""
        every = list(Sort)
        return every[(every.index(self) + 1) % len(every)]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a reading for a minute: how far each count had come."""

    at: datetime
    delivered: dict[str, int]
    letters: dict[str, int]
    applied: dict[str, int] = {}
    """How many events each projection has applied."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a frame shows."""

    store: str = ""
    every: timedelta = timedelta(seconds=1)
    sort: Sort = Sort.TROUBLE
    is_paused: bool = False
    reading: Reading | None = None
    marks: tuple[Mark, ...] = ()
    error: str = ""
    silent_for: timedelta = timedelta(0)

    def after(self, reading: Reading) -> View:
        """Return the view with a later reading; what is older than a minute is forgotten."""
        mark = Mark(
            at=reading.figures.now,
            delivered={
                one.name: one.delivered + one.pruned for one in reading.figures.destinations
            },
            letters={one.id: one.count for one in reading.groups},
            applied={
                one.checkpoint.projection: one.checkpoint.count for one in reading.projections
            },
        )
        # A clock that was set back would put the past after the present.
        earlier = [one for one in self.marks if one.at < mark.at]
        recent = [one for one in earlier if one.at >= mark.at - MINUTE]
        # The one just beyond the minute says how the minute began.
        begun = earlier[: len(earlier) - len(recent)][-1:]
        return msgspec.structs.replace(
            self,
            reading=reading,
            marks=(*begun, *recent, mark),
            error="",
            silent_for=timedelta(0),
        )

    def without_store(self, error: str, silent_for: timedelta) -> View:
        """Return the view while the store does not answer: the last reading stays."""
        return msgspec.structs.replace(self, error=error, silent_for=silent_for)

    def per_second(self, name: str) -> float | None:
        """Return how many were delivered per second between the last two readings."""
        if len(self.marks) < 2:  # noqa: PLR2004 - between two
            return None
        before, now = self.marks[-2:]
        return _delivered(before, now, name) / (now.at - before.at).total_seconds()

    def applied_per_second(self, projection: str) -> float | None:
        """Return how many events were applied per second between the last two readings."""
        if len(self.marks) < 2:  # noqa: PLR2004 - between two
            return None
        before, now = self.marks[-2:]
        # One that begins anew has applied fewer than before.
        applied = now.applied.get(projection, 0) - before.applied.get(projection, 0)
        return max(0, applied) / (now.at - before.at).total_seconds()

    def flow(self, name: str, *, parts: int) -> list[float | None]:
        """Return deliveries per second in each part of the last minute, `None` if unknown."""
        if not self.marks:
            return [None] * parts
        span = MINUTE.total_seconds() / parts
        end = self.marks[-1].at
        sums: list[float | None] = [None] * parts
        for before, after in pairwise(self.marks):
            begin = (before.at - end + MINUTE).total_seconds()
            close = (after.at - end + MINUTE).total_seconds()
            rate = _delivered(before, after, name) / (close - begin)
            for part in range(max(0, int(begin // span)), parts):
                shared = min(close, (part + 1) * span) - max(begin, part * span)
                if shared <= 0:
                    break
                sums[part] = (sums[part] or 0.0) + rate * shared / span
        return sums

    def rise(self, group: Group) -> int:
        """Return by how many letters a group has grown in the minute that was watched."""
        before = next((one.letters.get(group.id, 0) for one in self.marks), group.count)
        return max(0, group.count - before)

    def destinations(self) -> Sequence[DestinationFigures]:
        """Return the destinations in the order that was asked for."""
        if self.reading is None:
            return ()
        now = self.reading.figures.now
        gates = {one.destination: one for one in self.reading.gates}

        def weight(one: DestinationFigures) -> tuple[float, ...]:
            match self.sort:
                case Sort.NAME:
                    return ()
                case Sort.PENDING:
                    return (-one.pending,)
                case Sort.FAILED:
                    return (-one.failed,)
                case Sort.RATE:
                    return (-(self.per_second(one.name) or 0.0),)
                case Sort.TROUBLE:
                    return _trouble(one, gates.get(one.name), now)

        return sorted(self.reading.figures.destinations, key=lambda one: (weight(one), one.name))


def _trouble(
    one: DestinationFigures, gate: GateFigures | None, now: datetime
) -> tuple[float, float, float]:
    """Weigh what a person should see first: what is shut or slow, what failed, what is late."""
    is_late = one.oldest_due is not None and one.oldest_due < now
    late = (now - one.oldest_due).total_seconds() if is_late and one.oldest_due else 0.0
    if gate is None or gate.hold is None:
        return 2.0, -one.failed, -late
    is_shut = gate.gate.pause is not None or isinstance(gate.gate.breaker, Open)
    return 0.0 if is_shut else 1.0 if is_late else 2.0, -one.failed, -late


def _delivered(before: Mark, after: Mark, name: str) -> int:
    # A store may be another one than before, with less in it; a destination may be new.
    return max(0, after.delivered.get(name, 0) - before.delivered.get(name, 0))
