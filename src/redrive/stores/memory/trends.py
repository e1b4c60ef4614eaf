"""Trends, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from redrive.model.trend import Measure, TrendPoint
from redrive.store import KeptTrends
from redrive.stores.memory.tables import Tables
from redrive.stores.trending import TIERS, floor, span_at, with_all

__all__ = ["MemoryTrends"]

_MINUTE = 60
_MINUTES_KEPT = timedelta(seconds=TIERS[1].kept)
_LONGEST_POINT = timedelta(hours=1)


class MemoryTrends(Tables):
    """`Trends` over the tables."""

    async def add_trends(self, measures: Mapping[str, Measure]) -> None:
        with self._lock:
            minute = floor(self._clock.now(), _MINUTE)
            for name, measure in with_all(measures).items():
                self._add_point(name, minute, measure)

    async def trends(self, names: Sequence[str], *, back: timedelta) -> KeptTrends:
        with self._lock:
            now = self._clock.now()
            return KeptTrends(
                now=now,
                points={
                    name: [
                        TrendPoint(start=start, measure=measure)
                        for start, measure in sorted(self._trends.get(name, {}).items())
                        if start + _LONGEST_POINT > now - back
                    ]
                    for name in names
                },
            )

    async def roll_up_trends(self, *, limit: int = 500) -> int:
        with self._lock:
            now = self._clock.now()
            until = now - _MINUTES_KEPT
            old = [
                (name, start, span)
                for name, points in self._trends.items()
                for start in points
                # Most are young, and it is asked in every round.
                if start <= until
                and ((span := span_at(start, now=now)) is None or start != floor(start, span))
            ][:limit]
            for name, start, span in old:
                measure = self._trends[name].pop(start)
                if span is not None:
                    self._add_point(name, floor(start, span), measure)
                if not self._trends[name]:
                    del self._trends[name]
            return len(old)

    def _add_point(self, name: str, start: datetime, measure: Measure) -> None:
        points = self._trends.setdefault(name, {})
        points[start] = points.get(start, Measure()) + measure
