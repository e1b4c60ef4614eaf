"""Trends: what became of deliveries over time, each number as a line of little bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.spark import sparkline
from redrive.cli.show.words import safe, short
from redrive.model.duration import rough_duration
from redrive.model.trend import Measure, Trend, Window

__all__ = ["trends"]

_AT_ONCE = {Window.HOUR: 2, Window.DAY: 4, Window.WEEK: 6}
"""How many points share a bar, so that a line fits any terminal."""
_SLOW = 0.95


def trends(found: Sequence[Trend]) -> Iterator[RenderableType]:
    """Show trends below each other."""
    for place, one in enumerate(found):
        if place:
            yield ""
        name = "all destinations" if one.destination is None else safe(one.destination)
        yield Text.assemble((name, "bold"), (f", the last {one.window}", "dim"))
        yield _table(one)


def _table(trend: Trend) -> Listing:
    bars, total = _bars(trend), trend.total
    table = Listing()
    table.add_words("")
    table.add_figures("Total")
    table.add_figures("Over time", is_text=True)

    def add(label: str, told: str, value: Callable[[Measure], float | None]) -> None:
        table.add_row(label, told, sparkline([value(one) for one in bars]))

    add("Delivered", short(total.delivered), lambda one: one.delivered)
    add("Retried", short(total.retried), lambda one: one.retried)
    add("Failed", short(total.failed), lambda one: one.failed)
    late = rough_duration(timedelta(seconds=total.overdue)) if total.overdue else "-"
    add("Oldest due", late, lambda one: one.overdue)
    add("95 % of tries", _took(total.latency(_SLOW)), lambda one: one.latency(_SLOW))
    return table


def _bars(trend: Trend) -> list[Measure]:
    size, points = _AT_ONCE[trend.window], trend.points
    bars = []
    for begin in range(0, len(points), size):
        bar = Measure()
        for one in points[begin : begin + size]:
            bar += one.measure
        bars.append(bar)
    return bars


def _took(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
