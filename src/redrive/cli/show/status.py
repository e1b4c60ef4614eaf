"""The whole system on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.destinations import held, neglect, overridden
from redrive.cli.show.findings import attention
from redrive.cli.show.listing import Listing
from redrive.cli.show.projections import projections
from redrive.cli.show.words import ago, counted, safe, short
from redrive.model.duration import rough_duration
from redrive.model.gate import GateFigures
from redrive.operations import ScheduleFigures
from redrive.operations.explain.diagnosis import diagnose, is_alive
from redrive.store import DestinationFigures, Figures, ProjectionFigures

__all__ = ["status"]

_MOST_WORKERS = 10
_MOST_TENANTS = 3


class _Column(NamedTuple):
    """A count in the table of destinations; one that is optional hides while it is all zeros."""

    heading: str
    count: Callable[[DestinationFigures], int]
    style: str = ""
    is_optional: bool = False


_COLUMNS = (
    _Column("Pending", lambda one: one.pending),
    _Column("Waiting", lambda one: one.waiting, is_optional=True),
    _Column("Behind", lambda one: one.behind, is_optional=True),
    _Column("In\nflight", lambda one: one.in_flight),
    _Column("Delivered", lambda one: one.delivered + one.pruned),
    _Column("Failed", lambda one: one.failed, style="red"),
    _Column("Resolved", lambda one: one.resolved, is_optional=True),
)


def status(
    figures: Figures,
    gates: Sequence[GateFigures],
    schedules: Sequence[ScheduleFigures] = (),
    read: Sequence[ProjectionFigures] = (),
) -> Iterator[RenderableType]:
    """Show destinations, projections, workers and totals, and what needs attention."""
    if figures.destinations:
        yield _destinations(figures, {one.destination: one for one in gates})
    else:
        yield Text("No destination yet; a worker registers those of its app when it starts.")
    yield ""
    if read:
        yield from projections(read, gates)
        yield ""
    if figures.workers:
        yield _workers(figures)
    else:
        yield Text("No worker is running.")
    yield ""
    yield Text(_totals(figures), style="dim")
    if figures.letters.count:
        yield Text(_letters(figures), style="dim")
    yield ""
    yield attention(diagnose(figures, gates, schedules=schedules, projections=read))


def _destinations(figures: Figures, gates: Mapping[str, GateFigures]) -> Listing:
    columns = [
        column
        for column in _COLUMNS
        if not column.is_optional or any(map(column.count, figures.destinations))
    ]
    gap = 1 if len(columns) == len(_COLUMNS) else 2
    table = Listing(gap=gap)
    table.add_words("Destination", lines="cut")
    table.add_figures(*(column.heading for column in columns), "Oldest\ndue")
    neglected = neglect(figures)
    for one in figures.destinations:
        counts = [(column.count(one), column.style) for column in columns]
        late = None if one.oldest_due is None else rough_duration(figures.now - one.oldest_due)
        table.add_row(
            _name(one, gates.get(one.name), neglected.get(one.name, ""), now=figures.now),
            *(Text(short(count), style=style if count else "dim") for count, style in counts),
            Text("-", style="dim") if late is None else late,
        )
    return table


def _name(
    destination: DestinationFigures, gate: GateFigures | None, neglected: str, *, now: datetime
) -> Text:
    text = Text(safe(destination.name))
    hold = held(gate, destination)
    if hold and destination.due:
        hold += f", {short(destination.due)} held"
    for word in (hold, overridden(gate, now=now), neglected):
        if word:
            text.append(f"\n  {word}", style="yellow")
    return text


def _workers(figures: Figures) -> Listing:
    table = Listing()
    table.add_words("Worker")
    table.add_figures("Seen", is_text=True)
    table.add_figures("In flight")
    latest = sorted(figures.workers, key=lambda one: one.seen_at, reverse=True)
    for one in latest[:_MOST_WORKERS]:
        style = "" if is_alive(one, figures) else "dim"
        seen = ago(one.seen_at, figures.now)
        table.add_row(safe(one.id), seen, short(one.in_flight), style=style)
    if len(latest) > _MOST_WORKERS:
        table.add_row(f"and {len(latest) - _MOST_WORKERS} more", style="dim")
    return table


def _letters(figures: Figures) -> str:
    letters = figures.letters
    parts = [counted(letters.count, "dead letter")]
    if letters.oldest is not None:
        parts.append(f"the oldest {ago(letters.oldest, figures.now)}")
    if letters.lately:
        parts.append(f"{letters.per_minute:.1f} per minute")
    parts += [f"{reason} {count:,}" for reason, count in letters.by_reason]
    if letters.by_tenant:
        tenants = letters.by_tenant[:_MOST_TENANTS]
        parts.append("tenants " + ", ".join(f"{safe(name)} {count:,}" for name, count in tenants))
    return " · ".join(parts)


def _totals(figures: Figures) -> str:
    parts = [counted(figures.events, "event")]
    if figures.pruned_events:
        parts.append(f"{figures.pruned_events:,} more pruned")
    if figures.unrouted:
        are_read = any(one.is_projection for one in figures.destinations)
        words = "given to no destination" if are_read else "unrouted"
        parts.append(f"{figures.unrouted:,} {words}")
    if figures.deleted:
        parts.append(f"{counted(figures.deleted, 'delivery', 'deliveries')} deleted")
    if figures.exported:
        parts.append(f"{counted(figures.exported, 'dead letter')} exported")
    if figures.refused_settlements:
        parts.append(f"{counted(figures.refused_settlements, 'late settlement')} refused")
    return " · ".join(parts)
