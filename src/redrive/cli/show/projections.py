"""Projections: how far they are, and what keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, counted, instant, safe
from redrive.model.duration import spell_duration
from redrive.model.gate import GateFigures
from redrive.store import ProjectionFigures

__all__ = ["as_json", "projection", "projections"]


def projections(
    found: Sequence[ProjectionFigures], gates: Sequence[GateFigures]
) -> Iterator[RenderableType]:
    """Show projections, by name."""
    if not found:
        yield Text("No projection yet; a worker begins those of its app: @app.projection(…).")
        return
    table = Listing()
    table.add_words("Projection")
    table.add_figures("State", is_text=True)
    table.add_figures("Behind", "For", "Parked", "Applied", is_text=True)
    for one in found:
        table.add_row(
            safe(one.checkpoint.projection),
            _state(one, gates),
            _behind(one),
            spell_duration(one.behind_for) if one.oldest_at else "-",
            f"{one.parked_keys:,}",
            f"{one.checkpoint.count:,}",
        )
    yield table


def projection(one: ProjectionFigures, gates: Sequence[GateFigures]) -> Iterator[RenderableType]:
    """Show one projection."""
    checkpoint = one.checkpoint
    yield Text.assemble((safe(checkpoint.projection), "bold"), "  ", _state(one, gates))
    yield ""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("wants", safe(", ".join(checkpoint.types) or "every event"))
    grid.add_row("position", f"{checkpoint.position}, begun behind {checkpoint.began}")
    grid.add_row("applied", counted(checkpoint.count, "event"))
    if checkpoint.event_id is not None and checkpoint.applied_at is not None:
        last = f"{safe(checkpoint.event_type or '')} {safe(checkpoint.event_id)}"
        grid.add_row("last", f"{last}, {instant(checkpoint.applied_at, one.now)}")
    by_type = ", ".join(f"{safe(kind)} {count:,}" for kind, count in one.lag.items())
    grid.add_row("behind", f"{_behind(one)}{f' ({by_type})' if by_type else ''}")
    if one.oldest_at is not None:
        grid.add_row("for", spell_duration(one.behind_for))
    if one.handed_over:
        keys = counted(one.parked_keys, "key")
        grid.add_row("parked", f"{counted(one.handed_over, 'event')} of {keys}")
    if checkpoint.worker is not None and one.seen_at is not None:
        grid.add_row("read by", f"{safe(checkpoint.worker)}, seen {ago(one.seen_at, one.now)}")
    yield grid


def as_json(one: ProjectionFigures, gates: Sequence[GateFigures]) -> dict[str, object]:
    """Return a projection as commands print it for machines."""
    checkpoint = one.checkpoint
    return {
        "name": checkpoint.projection,
        "state": _state(one, gates).plain,
        "position": str(checkpoint.position),
        "began": str(checkpoint.began),
        "types": checkpoint.types,
        "applied": checkpoint.count,
        "last_event": checkpoint.event_id,
        "last_type": checkpoint.event_type,
        "applied_at": checkpoint.applied_at,
        "lag": one.lag,
        "events_behind": one.events_behind,
        "seconds_behind": one.behind_for.total_seconds(),
        "is_caught_up": one.is_caught_up,
        "handed_over": one.handed_over,
        "parked_keys": one.parked_keys,
        "worker": checkpoint.worker,
        "worker_seen_at": one.seen_at,
    }


def _behind(one: ProjectionFigures) -> str:
    return f"{one.events_behind:,}{'+' if one.is_at_least else ''}"


def _state(one: ProjectionFigures, gates: Sequence[GateFigures]) -> Text:
    name = one.checkpoint.projection
    hold = next((gate.hold for gate in gates if gate.destination == name), None)
    if hold is not None:
        return Text(str(hold), style="yellow")
    if one.seen_at is None:
        return Text("not read", style="red")
    if one.checkpoint.is_reset:
        return Text("begins anew", style="yellow")
    if one.is_caught_up:
        return Text("caught up", style="green")
    return Text("behind", style="yellow")
