"""What a store promises about the gates of destinations, which all workers share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.gate import BreakerChange, GateFigures

__all__ = ["Gates", "Report"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts say of their destination: `times` in a row it answered, or it did not.

    `generation` is that of the breaker when they were claimed. `is_success` is `None` when they
    say nothing of its health; `slow_for` is a wait that the destination asked of everybody.
    """

    destination: str
    generation: int
    is_success: bool | None = None
    times: int = 1
    slow_for: timedelta | None = None


class Gates(Protocol):
    """Breakers, buckets and pauses. `claim` takes tokens and probes from them as it leases."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Sequence[BreakerChange]:
        """Count results for the breakers; `chance`, from 0 to 1, spreads how long they stay open.

        Results of an older generation change nothing.
        """

    async def gates(self) -> Sequence[GateFigures]:
        """Return the gate of every destination, and what holds it now."""

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        """Let nothing through until resumed; tells whether that is new. Survives restarts."""

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        """End a pause; tells whether there was one. What waited goes on at the pace of retries."""

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        """Open a breaker by hand, until an instant or until it is reset."""

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        """Close a breaker by hand and forget what it has counted."""
