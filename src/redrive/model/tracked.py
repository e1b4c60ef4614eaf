"""Tracked: what became of events that were tracked, in figures."""

from __future__ import annotations

import msgspec

__all__ = ["SHARES", "DestinationFigures", "Tracked", "TrackingFigures"]

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Bounds of the shares of a fan-out that have arrived; each counts what is not above it."""


class Tracked(msgspec.Struct, frozen=True, gc=False):
    """What `track` returns: the event's id, and whether it waits to be sent.

    If not, `dropped` is the reason for which it was left out.
    """

    event_id: str
    dropped: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits to be sent; if not, it was left out and counted."""
        return not self.dropped


class DestinationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of events at one destination.

    `failed` were tried and then handed over; `held` were handed over without a try.
    """

    arrived: int = 0
    failed: int = 0
    held: int = 0
    dropped: int = 0


class TrackingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all that was tracked in this process.

    `tracked` is `waiting` plus `sent`, `stored`, `spilled` and all that was `dropped`, at any
    moment. `limited` were above their rate, whether they were kept then or not. `doubled` fitted
    `never_save` and `always_save`. `drained` counts what the journal has given to the store.
    `shares` counts events by the share of their destinations that they have reached by themselves,
    and `share_sum` adds these shares up.
    """

    tracked: int = 0
    waiting: int = 0
    sent: int = 0
    stored: int = 0
    spilled: int = 0
    dropped: dict[str, int] = {}
    limited: int = 0
    doubled: int = 0
    drained: int = 0
    destinations: dict[str, DestinationFigures] = {}
    shares: dict[str, int] = {}
    share_sum: float = 0.0

    @property
    def is_balanced(self) -> bool:
        """Whether the sum adds up."""
        ended = self.sent + self.stored + self.spilled + sum(self.dropped.values())
        return self.tracked == self.waiting + ended
