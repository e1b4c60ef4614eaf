"""Books: counts what becomes of all that is tracked, to the last event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from redrive.model.tracked import SHARES, DestinationFigures, TrackingFigures

__all__ = ["Books", "End"]


class End(StrEnum):
    """What became of an event, or is to become of it: the worst of what its parts met."""

    SENT = "sent"
    """It has arrived everywhere, and is nowhere in the store."""
    STORED = "stored"
    """Something of it is in the store, and goes on as an ordinary delivery."""
    SPILLED = "spilled"
    """Something of it is in the journal, from where the store gets it."""
    DROPPED = "dropped"
    """Something of it is lost, and counted by its reason."""


class Books:
    """Counts; whoever changes them holds the lock of the tracker they belong to."""

    def __init__(self) -> None:
        self.tracked = 0
        self.limited = 0
        self.doubled = 0
        self.drained = 0
        self.ended: Counter[End] = Counter()
        self.dropped: Counter[str] = Counter()
        self.destinations: dict[str, Counter[str]] = {}
        self.shares: Counter[float] = Counter()
        self.share_sum = 0.0

    def end(self, end: End, *, why: str = "") -> None:
        """Count what became of an event."""
        self.ended[end] += 1
        if end is End.DROPPED:
            self.dropped[why] += 1

    def reach(self, destination: str, what: str, times: int) -> None:
        """Count what became of events at one destination."""
        self.destinations.setdefault(destination, Counter())[what] += times

    def share(self, arrived: int, wanted: int) -> None:
        """Count which share of the destinations of an event it has reached by itself."""
        part = arrived / wanted
        self.share_sum += part
        self.shares[next(bound for bound in SHARES if part <= bound)] += 1

    def figures(self) -> TrackingFigures:
        """Return them as they are."""
        return TrackingFigures(
            tracked=self.tracked,
            waiting=self.tracked - sum(self.ended.values()),
            sent=self.ended[End.SENT],
            stored=self.ended[End.STORED],
            spilled=self.ended[End.SPILLED],
            dropped=_sorted(self.dropped.items()),
            limited=self.limited,
            doubled=self.doubled,
            drained=self.drained,
            destinations={
                name: DestinationFigures(**counts)
                for name, counts in sorted(self.destinations.items())
            },
            shares={f"{bound:g}": self.shares[bound] for bound in SHARES if self.shares[bound]},
            share_sum=self.share_sum,
        )


def _sorted(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    return dict(sorted(counts))
