"""What a store promises about events that were tried before they were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.delivery import Attempt, Kind
from redrive.model.event import Event
from redrive.model.outcome import Exchange, Fault
from redrive.model.settlement import FailureReason

__all__ = ["Admission", "Admissions", "Rest", "TakesOver", "Tried"]


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left to do of an event at one destination, and what was tried there, if anything.

    With a `reason` it is a dead letter, else it is due at `due`, or at once.
    """

    destination: str
    due: datetime | None = None
    kind: Kind = Kind.FIRST
    attempts: int = 0
    snoozes: int = 0
    reason: FailureReason | None = None
    fault: Fault | None = None
    attempt: Attempt | None = None
    exchange: Exchange | None = None


class Tried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that was tried before it was stored: where it has arrived, and what is left."""

    event: Event[msgspec.Raw]
    arrived: tuple[str, ...] = ()
    rest: tuple[Rest, ...] = ()


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What a destination takes past the store: so many, in the breaker's present generation.

    If it `is_counted`, each of them has had its token taken; else that many more may follow.
    """

    passes: int
    generation: int = 0
    is_counted: bool = False


class Admissions(msgspec.Struct, frozen=True, kw_only=True):
    """The gates of some destinations, as of `now` by the store's clock.

    A destination that is not known, or was removed, is not in it. `paused` are the tenants that
    are paused, each at a destination or, with `None`, at all of them.
    """

    now: datetime
    routes_version: int
    of: Mapping[str, Admission]
    paused: tuple[tuple[str, str | None], ...] = ()


class TakesOver(Protocol):
    """Events that a process tries by itself, and hands over when that did not do."""

    async def admit(self, wanted: Mapping[str, int]) -> Admissions:
        """Tell how many first attempts may be made past the store, and count them as made.

        Nothing passes a gate that is not fully open: paused, blocked, slowed, with a breaker that
        is open or probes, or while what has waited still goes out. Where a rate is kept to, what
        is admitted has its tokens taken, at most as many as were wanted; of a rate that is shared
        with other destinations nothing is given away.
        """

    async def take_over(self, batch: Sequence[Tried]) -> int:
        """Store what is left of events, and tell how many deliveries that made.

        An event that is not known is appended, and is given to those where it has arrived and to
        those where something is left. Of one that is known, a rest counts only at a destination
        that the event was not given to before: the same batch again changes nothing. Where an
        event has arrived is noted of events that are known or have a rest; others are not stored.
        A delivery joins its lane as one that is published now. A destination that is not known is
        added as removed.
        """
