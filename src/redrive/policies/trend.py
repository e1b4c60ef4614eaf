"""Trends as they are drawn: a point for each step of a window, even where nothing happened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from redrive.model.trend import Measure, TrendPoint, Window

__all__ = ["drawn"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def drawn(points: Sequence[TrendPoint], window: Window, *, now: datetime) -> tuple[TrendPoint, ...]:
    """Return the points of a window, the present in the last; what is kept by less is added up."""
    begin = _step_of(now, window.step) - window.span + window.step
    found: dict[datetime, Measure] = {
        begin + place * window.step: Measure() for place in range(window.span // window.step)
    }
    for one in points:
        start = _step_of(one.start, window.step)
        if start in found:
            found[start] += one.measure
    return tuple(TrendPoint(start=start, measure=measure) for start, measure in found.items())


def _step_of(instant: datetime, step: timedelta) -> datetime:
    return _EPOCH + (instant - _EPOCH) // step * step
