"""Charts: trends as plain data for a template to draw, and the same in words and in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.model.duration import rough_duration
from redrive.model.trend import Measure, Trend, Window
from redrive.web.pages.page import Visit

__all__ = ["HEIGHT", "WIDTH", "Chart", "Charts", "Shape", "charts_of", "read_charts"]

WIDTH, HEIGHT = 600, 120
"""The size of a drawing in its own units; it is stretched to the room there is."""
_GAP = 0.25
"""How much of a bar's room is left empty."""
_LEAST = 2.0
"""How high a bar is at least that is not nothing, so that one failure is seen."""
_TYPICAL, _SLOW = 0.5, 0.95
_ROWS = {Window.HOUR: 5, Window.DAY: 12, Window.WEEK: 24}
"""How many points share a row of the table."""
_EACH = {Window.HOUR: "a minute", Window.DAY: "in ten minutes", Window.WEEK: "an hour"}
_BRIEFLY = {Window.HOUR: "/min", Window.DAY: "/10 min", Window.WEEK: "/h"}
_CLOCK = {Window.HOUR: "%H:%M UTC", Window.DAY: "%H:%M UTC", Window.WEEK: "%a %d %b"}


class Shape(msgspec.Struct, frozen=True):
    """A path of a drawing: its class says how it looks, `d` is what SVG calls it."""

    name: str
    d: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One drawing: what it shows, what that sums up to, the top of its scale, and all in words."""

    name: str
    title: str
    total: str
    top: str
    words: str
    shapes: tuple[Shape, ...] = ()
    level: str = ""


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries over a window; `rows` says the same as the drawings."""

    window: Window
    windows: tuple[Window, ...]
    begin: datetime
    now: datetime
    clock: str
    charts: tuple[Chart, ...]
    rows: tuple[tuple[str, ...], ...]


async def read_charts(visit: Visit, destination: str | None = None) -> Charts:
    """Read the trend of a destination, or of all, over what the visitor asked for."""
    names = () if destination is None else (destination,)
    over = visit.asked("over") or Window.HOUR
    [trend] = await visit.operations.trends(names, over=over)
    return charts_of(trend)


def charts_of(trend: Trend) -> Charts:
    """Return the drawings of a trend."""
    points = trend.points
    charts = (
        *(_counts(trend, name) for name in ("delivered", "failed", "retried")),
        _late(trend),
        _latency(trend),
    )
    return Charts(
        window=trend.window,
        windows=tuple(Window),
        begin=points[0].start,
        now=trend.now,
        clock=_CLOCK[trend.window],
        charts=charts,
        rows=tuple(_rows(trend)),
    )


def _counts(trend: Trend, name: str) -> Chart:
    values = [int(getattr(one.measure, name)) for one in trend.points]
    top, total, title = max(values), sum(values), name.capitalize()
    most = f"{top:,} {_EACH[trend.window]}"
    over = f"over the last {trend.window}"
    return Chart(
        name=name,
        title=title,
        total=f"{total:,}",
        top=f"{top:,}{_BRIEFLY[trend.window]}" if top else "",
        words=f"{title}: {total:,} {over}, at most {most}." if total else f"{title}: none {over}.",
        shapes=(Shape(name, _columns(values, top)),) if total else (),
        level="error" if name == "failed" and total else "",
    )


def _late(trend: Trend) -> Chart:
    values = [one.measure.overdue for one in trend.points]
    longest, over = max(values), f"over the last {trend.window}"
    if not longest:
        words = f"Oldest due: nothing that was due had to wait {over}."
        return Chart(name="late", title="Oldest due", total="-", top="", words=words)
    return Chart(
        name="late",
        title="Oldest due",
        total=_span(longest),
        top=_span(longest),
        words=f"Oldest due: something had waited for {_span(longest)} at most {over}.",
        shapes=(Shape("late", _columns(values, longest)),),
    )


def _latency(trend: Trend) -> Chart:
    total, over = trend.total, f"over the last {trend.window}"
    slow = [one.measure.latency(_SLOW) for one in trend.points]
    typical = [one.measure.latency(_TYPICAL) for one in trend.points]
    top = max((one for one in slow if one is not None), default=None)
    if top is None:
        words = f"Latency: no try ended {over}."
        return Chart(name="latency", title="Latency", total="-", top="", words=words)
    half, most = _took(total.latency(_TYPICAL)), _took(total.latency(_SLOW))
    return Chart(
        name="latency",
        title="Latency",
        total=most,
        top=_took(top),
        words=f"Latency: half of the tries {over} took at most {half}, and 95 % at most {most}.",
        shapes=(Shape("slow", _columns(slow, top)), Shape("typical", _columns(typical, top))),
    )


def _columns(values: Sequence[float | None], top: float) -> str:
    """Return upright bars side by side, the largest at full height."""
    room = WIDTH / len(values)
    drawn = []
    for place, value in enumerate(values):
        if value:
            height = max(_LEAST, HEIGHT * value / top)
            left = room * (place + _GAP / 2)
            drawn.append(
                f"M{left:.1f} {HEIGHT}v-{height:.1f}h{room * (1 - _GAP):.1f}v{height:.1f}z"
            )
    return "".join(drawn)


def _rows(trend: Trend) -> Iterator[tuple[str, ...]]:
    """Return the points added up to a dozen rows at most, the latest first."""
    size, points = _ROWS[trend.window], trend.points
    for begin in reversed(range(0, len(points), size)):
        added = Measure()
        for one in points[begin : begin + size]:
            added += one.measure
        until = points[begin].start + size * trend.step
        clock = "%H:%M" if trend.window is not Window.WEEK else "%a %H:%M"
        yield (
            f"{points[begin].start:{clock}} to {until:%H:%M}",
            f"{added.delivered:,}",
            f"{added.failed:,}",
            f"{added.retried:,}",
            _span(added.overdue) if added.overdue else "-",
            _took(added.latency(_TYPICAL)),
            _took(added.latency(_SLOW)),
        )


def _span(seconds: int) -> str:
    return rough_duration(timedelta(seconds=seconds))


def _took(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
