"""The parts of the picture: each is one function from the view to a panel, or to nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from rich.text import Text

from redrive.cli.show.projections import reader_of, state_of
from redrive.cli.show.replays import REPLAY_STYLES
from redrive.cli.show.spark import sparkline
from redrive.cli.show.top.grid import Column, Panel, Row
from redrive.cli.show.top.holds import light, reasons
from redrive.cli.show.top.view import MINUTE, Reading, View
from redrive.cli.show.words import ago, counted, safe, short
from redrive.operations.explain.diagnosis import is_alive
from redrive.policies.attention import orphans, stranded
from redrive.store import DestinationFigures, Figures, Group

__all__ = ["LETTER_GROUPS", "PANELS", "STOPPED_LANES", "PanelOf"]

LETTER_GROUPS, STOPPED_LANES = 10, 10
"""How many groups and lanes are read for a frame."""

PanelOf = Callable[[View, Reading, int], Panel | None]

_WIDE = 112
_SPARK, _WIDE_SPARK = 10, 30
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+:)")
"""The module of an error's class, for which there is no room."""


def destinations(view: View, reading: Reading, width: int) -> Panel | None:
    """Show each destination: its breaker's light, its counts, its flow, and what holds it."""
    is_wide = width >= _WIDE
    has_waiting = any(one.waiting for one in reading.figures.destinations)
    has_behind = any(one.behind for one in reading.figures.destinations)
    columns = [
        Column("Destination", is_flexible=not is_wide, most=30),
        Column("Pending", "right"),
        *([Column("Waiting", "right")] if has_waiting else []),
        *([Column("Behind", "right")] if has_behind else []),
        Column("Flight", "right"),
        Column("Failed", "right"),
        Column("/s", "right"),
        Column("Minute"),
        Column("Due for", "right"),
        *([Column("Held", is_flexible=True)] if is_wide else []),
    ]
    gates = {one.destination: one for one in reading.gates}
    rows = []
    for one in view.destinations():
        gate = gates.get(one.name)
        held = Text(" · ").join(reasons(gate, one, now=reading.figures.now))
        cells = [
            Text.assemble(light(gate), " ", safe(one.name)),
            _count(one.pending),
            *([_count(one.waiting)] if has_waiting else []),
            *([_count(one.behind)] if has_behind else []),
            _count(one.in_flight, "cyan"),
            _count(one.failed, "red"),
            _rate(view.per_second(one.name)),
            _spark(view, one, parts=_WIDE_SPARK if is_wide else _SPARK),
            _late(one, reading.figures.now),
        ]
        if is_wide:
            rows.append(Row([*cells, held]))
        else:
            rows.append(Row(cells, below=held or None))
    return Panel(columns, rows) if rows else None


def projections(view: View, reading: Reading, width: int) -> Panel | None:
    """Show each projection: how far it is, how fast, what is parked of it, and who reads."""
    del width
    if not reading.projections:
        return None
    columns = [
        Column("Projection", most=30),
        Column("State"),
        Column("Behind", "right"),
        Column("For", "right"),
        Column("/s", "right"),
        Column("Parked", "right"),
        Column("Read by", is_flexible=True),
    ]
    rows = []
    for one in reading.projections:
        name = one.checkpoint.projection
        rows.append(
            Row(
                [
                    Text(safe(name)),
                    state_of(one, reading.gates),
                    _count(one.events_behind, "yellow"),
                    Text(_compact(one.behind_for) if one.oldest_at else "-"),
                    _rate(view.applied_per_second(name)),
                    _count(one.parked_keys, "red"),
                    reader_of(one),
                ]
            )
        )
    return Panel(columns, rows)


def groups(view: View, reading: Reading, width: int) -> Panel | None:
    """Show what dead letters failed of, the largest group first, and which of them grow."""
    del width
    if not reading.groups:
        return None
    columns = [
        Column("Dead letters", "right"),
        Column("Growing"),
        Column("Last seen"),
        Column("Destination", most=16),
        Column("What they failed of", is_flexible=True),
    ]
    now = reading.figures.now
    rows = [
        Row(
            [
                _count(one.count, "red"),
                _growth(view, one, now),
                Text(ago(one.last_seen, now)),
                Text(safe(one.destination)),
                Text(_MODULE.sub("", safe(one.title))),
            ]
        )
        for one in reading.groups
    ]
    return Panel(columns, rows, has_more=len(rows) >= LETTER_GROUPS)


def lanes(view: View, reading: Reading, width: int) -> Panel | None:
    """Show the keys that wait behind a dead letter, the longest first."""
    del view, width
    if not reading.lanes:
        return None
    columns = [
        Column("Stopped lane"),
        Column("Destination", most=16),
        Column("Behind", "right"),
        Column("Dead letter", most=24),
        Column("Since", is_flexible=True),
    ]
    rows = [
        Row(
            [
                Text(safe(one.key)),
                Text(safe(one.destination)),
                _count(one.waiting, "yellow"),
                Text(f"{one.head} {one.reason}"),
                Text(ago(one.since, reading.figures.now)),
            ]
        )
        for one in reading.lanes
    ]
    return Panel(columns, rows, has_more=len(rows) >= STOPPED_LANES)


def replays(view: View, reading: Reading, width: int) -> Panel | None:
    """Show the replays that go on, and those that wait for a person."""
    del view, width
    if not reading.replays:
        return None
    columns = [
        Column("Replay", "right"),
        Column("State"),
        Column("Sent", "right"),
        Column("Delivered", "right"),
        Column("Failed", "right"),
        Column("Destination", most=16),
        Column("Why", is_flexible=True),
    ]
    rows = [
        Row(
            [
                Text(str(one.id)),
                Text(one.state, style=REPLAY_STYLES[one.state]),
                Text(f"{short(one.sent)}/{short(one.selected)}"),
                _count(one.delivered, "green"),
                _count(one.failed, "red"),
                Text(safe(", ".join(one.destinations))),
                Text(safe(one.reason or one.why)),
            ]
        )
        for one in reading.replays
    ]
    return Panel(columns, rows)


def workers(view: View, reading: Reading, width: int) -> Panel | None:
    """Show the workers, those that still hold work in silence first, then the busiest."""
    del view, width
    figures = reading.figures
    if not figures.workers:
        return None
    columns = [
        Column("Worker"),
        Column("In flight", "right"),
        Column("Last seen", is_flexible=True),
    ]
    ordered = sorted(
        figures.workers,
        key=lambda one: (is_alive(one, figures) or not one.in_flight, -one.in_flight, one.id),
    )
    rows = []
    for one in ordered:
        alive = is_alive(one, figures)
        style = "" if alive else "red" if one.in_flight else "dim"
        seen = ago(one.seen_at, figures.now)
        rows.append(
            Row(
                [
                    Text(safe(one.id), style=style),
                    _count(one.in_flight, "cyan"),
                    Text(seen if alive else f"silent, {seen}", style=style),
                ]
            )
        )
    return Panel(columns, rows)


PANELS: tuple[PanelOf, ...] = (
    destinations,
    projections,
    replays,
    groups,
    lanes,
    workers,
)
"""From top to bottom; a further panel joins by one function in this list."""


def _count(count: int, style: str = "") -> Text:
    return Text(short(count), style=style if count else "dim")


def _rate(rate: float | None) -> Text:
    if rate is None:
        return Text("", style="dim")
    shown = f"{rate:.1f}" if 0 < rate < 10 else short(round(rate))  # noqa: PLR2004 - two digits
    return Text(shown, style="green" if rate else "dim")


def _spark(view: View, one: DestinationFigures, *, parts: int) -> Text:
    return Text(sparkline(view.flow(one.name, parts=parts)), style="green")


def _late(one: DestinationFigures, now: datetime) -> Text:
    if one.oldest_due is None or one.oldest_due > now:
        return Text("-", style="dim")
    late = now - one.oldest_due
    return Text(_compact(late), style="yellow" if late >= MINUTE else "")


def _compact(span: timedelta) -> str:
    """Write a span in at most six letters."""
    seconds = int(span.total_seconds())
    if seconds >= _DAY:
        return f"{seconds // _DAY}d{seconds % _DAY // _HOUR}h"
    if seconds >= _HOUR:
        return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE}m"
    if seconds >= _MINUTE:
        return f"{seconds // _MINUTE}m{seconds % _MINUTE}s"
    return f"{seconds}s"


def _growth(view: View, group: Group, now: datetime) -> Text:
    rise = view.rise(group)
    if rise:
        return Text(f"▲ +{short(rise)}", style="red")
    if now - group.last_seen < MINUTE:
        return Text("▲", style="red")
    return Text("no", style="dim")


def _stranded(figures: Figures) -> int:
    return sum(one.count for one in stranded(figures.due, figures.workers, now=figures.now))


def totals(view: View, reading: Reading) -> Iterator[Text]:
    """Say how much there is of everything, and what looks as if something was lost."""
    figures = reading.figures
    every = figures.destinations
    rates = [view.per_second(one.name) for one in every]
    parts = [
        counted(figures.events, "event"),
        f"{sum(one.pending for one in every):,} pending",
        f"{sum(one.in_flight for one in every):,} in flight",
        f"{sum(one.delivered + one.pruned for one in every):,} delivered",
        f"{sum(one.failed for one in every):,} failed",
    ]
    if rates and None not in rates:
        parts.append(f"{sum(rate or 0.0 for rate in rates):.0f}/s")
    yield Text(" · ".join(parts))
    alone, astray = len(orphans(figures)), _stranded(figures)
    # Where there are projections, such events are most likely theirs to read.
    lost = 0 if any(one.is_projection for one in every) else figures.unrouted
    odd = [
        (alone, counted(alone, "destination orphaned", "destinations orphaned")),
        (astray, counted(astray, "delivery stranded", "deliveries stranded")),
        (lost, counted(lost, "event went nowhere", "events went nowhere")),
        (figures.refused_settlements, f"{figures.refused_settlements:,} late settlements refused"),
        (figures.deleted, f"{figures.deleted:,} deleted by people"),
    ]
    if any(count for count, _ in odd):
        yield Text(" · ".join(text for count, text in odd if count), style="yellow")
