"""Trends: what became of deliveries over time, and how long their tries took."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

__all__ = [
    "LATENCIES",
    "NO_LATENCIES",
    "Measure",
    "Trend",
    "TrendPoint",
    "Window",
    "latency_bucket",
]

LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Up to how many seconds each bucket of latencies goes; one more takes what took longer."""

NO_LATENCIES = (0,) * (len(LATENCIES) + 1)


def latency_bucket(took: float) -> int:
    """Return the bucket of a try that took so many seconds.

    >>> latency_bucket(0.03), latency_bucket(3600.0)
    (3, 11)
    """
    return bisect_left(LATENCIES, took)


class Window(StrEnum):
    """How far a trend goes back."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def span(self) -> timedelta:
        """How long that is."""
        return {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}[
            self
        ]

    @property
    def step(self) -> timedelta:
        """How much time each of its points stands for."""
        minutes = {"hour": 1, "day": 10, "week": 60}[self]
        return timedelta(minutes=minutes)


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries within a while.

    `failed` became dead letters, tried or not. `overdue` is for how many seconds the oldest one
    that was due had been so, at most. `latencies` counts tries, by the buckets of `LATENCIES`.
    """

    delivered: int = 0
    retried: int = 0
    failed: int = 0
    overdue: int = 0
    latencies: tuple[int, ...] = NO_LATENCIES

    def __add__(self, other: Measure) -> Measure:
        return Measure(
            delivered=self.delivered + other.delivered,
            retried=self.retried + other.retried,
            failed=self.failed + other.failed,
            overdue=max(self.overdue, other.overdue),
            latencies=tuple(map(sum, zip(self.latencies, other.latencies, strict=True))),
        )

    def latency(self, share: float) -> float | None:
        """Return within how many seconds this share of the tries ended; `None` without any.

        It is read off the buckets, so it is exact only at their ends.

        >>> Measure(latencies=(5, 5, *(0,) * 10)).latency(0.5)
        0.005
        """
        tries = sum(self.latencies)
        if not tries:
            return None
        wanted, below, floor = share * tries, 0, 0.0
        for count, ceiling in zip(self.latencies, LATENCIES, strict=False):
            if count and below + count >= wanted:
                return floor + (ceiling - floor) * (wanted - below) / count
            below, floor = below + count, ceiling
        return LATENCIES[-1]


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries from an instant on, for a while."""

    start: datetime
    measure: Measure = Measure()


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries to a destination, or to all, over a window.

    Its points follow each other `step` by `step`, and the last is the present one.
    """

    destination: str | None
    window: Window
    step: timedelta
    now: datetime
    points: tuple[TrendPoint, ...]

    @property
    def total(self) -> Measure:
        """All of its points added up."""
        total = Measure()
        for one in self.points:
            total += one.measure
        return total
