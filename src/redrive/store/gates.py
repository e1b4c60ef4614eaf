"""What a store promises about the gates of destinations, which all workers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.gate import BreakerChange, BreakerState, GateFigures, Override
from redrive.model.limits import Limits

__all__ = ["Gates", "Report", "Reported"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts say of their destination: `times` in a row it answered, or it did not.

    `generation` is that of the breaker when they were claimed. `is_success` is `None` when they
    say nothing of its health; `slow_for` is a wait that the destination asked of everybody;
    `pause` is why it must be left alone until a person says otherwise, if it must. `is_check` says
    that it was no attempt but the health check that `begin_check` leased. `error` says how they
    failed, and `exhausts` is which try of its delivery it was, if that was the last. `call` is the
    request that has ended with it, and `retries` how many retries that has made.
    """

    destination: str
    generation: int
    is_success: bool | None = None
    times: int = 1
    slow_for: timedelta | None = None
    pause: str = ""
    is_check: bool = False
    error: str = ""
    exhausts: int = 0
    call: str = ""
    retries: int = 0


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of reports: how breakers changed, and which destinations are paused from now on.

    `reasons` say why, of each that is.
    `breakers` are those of all destinations that were reported on, as they are afterwards.
    """

    changes: tuple[BreakerChange, ...] = ()
    paused: tuple[str, ...] = ()
    reasons: Mapping[str, str] = MappingProxyType({})
    breakers: Mapping[str, BreakerState] = MappingProxyType({})


class Gates(Protocol):
    """Breakers, buckets and pauses. `claim` takes tokens and probes from them as it leases."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        """Count results for the breakers; `chance`, from 0 to 1, spreads how long they stay open.

        Results of an older generation change nothing. A pause leaves an audit entry by `REDRIVE`;
        of several for one destination, and beside one that a person made, only the first counts.
        """

    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        """Lease the health check of a destination, and return the breaker's generation.

        `None` while its breaker is not open, or open without an end; while it is paused; while
        another check is under way; and until `every` has passed since it opened or since the last
        one began. A check that `report` never hears of is over when its `lease` is.
        """

    async def gates(self, destinations: Sequence[str] | None = None) -> Sequence[GateFigures]:
        """Return the gate of every destination, or of some, and what holds it now.

        Of those that were removed, only where something still waits, runs or is a dead letter.
        """

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        """Let nothing through until resumed; tells whether that is new. Survives restarts."""

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        """End a pause; tells whether there was one. What waited goes on at the pace of retries."""

    async def override(
        self, destination: str, limits: Limits, *, lasts: timedelta, actor: Actor
    ) -> Override:
        """Keep to other limits than the declared ones for a while, instead of any before them.

        Only what they say of `OVERRIDABLE` counts. It ends by the store's clock, whoever runs, and
        the next claim of everybody keeps to it. The version of the routes grows.
        """

    async def end_override(self, destination: str, *, actor: Actor) -> bool:
        """Go back to the declared limits; tells whether others were kept to."""

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        """Open a breaker by hand, until an instant or until it is reset."""

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        """Close a breaker by hand and forget what it has counted."""
