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
from redrive.policies.attention import is_read
from redrive.store import ProjectionFigures, Rebuild

__all__ = ["as_json", "projection", "projections", "reader_of", "state_of"]


def projections(
    found: Sequence[ProjectionFigures], gates: Sequence[GateFigures]
) -> Iterator[RenderableType]:
    """Show projections, by name."""
    if not found:
        yield Text("No projection yet; a worker begins those of its app: @app.projection(…).")
        return
    has_versions = any(one.checkpoint.version > 1 for one in found)
    table = Listing()
    table.add_words("Projection")
    if has_versions:
        table.add_figures("Version", is_text=True)
    table.add_figures("State", is_text=True)
    table.add_figures("Behind", "For", "Parked", "Applied", is_text=True)
    table.add_words("Read by")
    for one in found:
        table.add_row(
            safe(one.checkpoint.projection),
            *([_version(one)] if has_versions else []),
            state_of(one, gates),
            _behind(one),
            spell_duration(one.behind_for) if one.oldest_at else "-",
            f"{one.parked_keys:,}",
            f"{one.checkpoint.count:,}",
            reader_of(one),
        )
    yield table


def projection(one: ProjectionFigures, gates: Sequence[GateFigures]) -> Iterator[RenderableType]:
    """Show one projection."""
    checkpoint = one.checkpoint
    yield Text.assemble((safe(checkpoint.projection), "bold"), "  ", state_of(one, gates))
    yield ""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if checkpoint.tables:
        grid.add_row("version", _version(one))
        grid.add_row("tables", safe(", ".join(checkpoint.own_tables)))
    grid.add_row("wants", safe(", ".join(checkpoint.types) or "every event"))
    grid.add_row("position", f"{checkpoint.position}, begun behind {checkpoint.began}")
    grid.add_row("applied", counted(checkpoint.count, "event"))
    if checkpoint.event_id is not None and checkpoint.applied_at is not None:
        last = f"{safe(checkpoint.event_type or '')} {safe(checkpoint.event_id)}"
        grid.add_row("last", f"{last}, {instant(checkpoint.applied_at, one.now)}")
    if checkpoint.rebuild is not None:
        grid.add_row("rebuild", _rebuild(one, checkpoint.rebuild))
        if checkpoint.rebuild.edited:
            grid.add_row("as edited", safe(", ".join(checkpoint.rebuild.edited)))
    by_type = ", ".join(f"{safe(kind)} {count:,}" for kind, count in one.lag.items())
    grid.add_row("behind", f"{_behind(one)}{f' ({by_type})' if by_type else ''}")
    if one.oldest_at is not None:
        grid.add_row("for", spell_duration(one.behind_for))
    if one.handed_over:
        keys = counted(one.parked_keys, "key")
        grid.add_row("parked", f"{counted(one.handed_over, 'event')} of {keys}")
    seen = f", seen {ago(one.seen_at, one.now)}" if one.seen_at is not None else ""
    grid.add_row("read by", Text.assemble(reader_of(one), seen))
    yield grid
    if one.parts:
        yield ""
        yield _partitions(one.parts)


def _partitions(parts: Sequence[ProjectionFigures]) -> RenderableType:
    table = Listing()
    table.add_figures("Partition", "Behind", "For", "Parked", "Applied", is_text=True)
    table.add_words("Read by")
    for one in parts:
        table.add_row(
            f"{one.checkpoint.partition}",
            _behind(one),
            spell_duration(one.behind_for) if one.oldest_at else "-",
            f"{one.parked_keys:,}",
            f"{one.checkpoint.count:,}",
            reader_of(one),
        )
    return table


def as_json(one: ProjectionFigures, gates: Sequence[GateFigures]) -> dict[str, object]:
    """Return a projection as commands print it for machines."""
    checkpoint = one.checkpoint
    return {
        "name": checkpoint.projection,
        "projection": checkpoint.name,
        "version": checkpoint.version,
        "is_serving": one.is_serving,
        "tables": checkpoint.own_tables,
        "state": state_of(one, gates).plain,
        "position": str(checkpoint.position),
        "began": str(checkpoint.began),
        "types": checkpoint.types,
        "applied": checkpoint.count,
        "last_event": checkpoint.event_id,
        "last_type": checkpoint.event_type,
        "applied_at": checkpoint.applied_at,
        "rebuild": checkpoint.rebuild,
        "progress": one.progress,
        "lag": one.lag,
        "events_behind": one.events_behind,
        "seconds_behind": one.behind_for.total_seconds(),
        "is_caught_up": one.is_caught_up,
        "handed_over": one.handed_over,
        "parked_keys": one.parked_keys,
        "is_read": is_read(one),
        "worker": checkpoint.worker,
        "worker_seen_at": one.seen_at,
        "partitions": [_part_as_json(part) for part in one.parts],
    }


def _part_as_json(one: ProjectionFigures) -> dict[str, object]:
    return {
        "partition": one.checkpoint.partition,
        "position": str(one.checkpoint.position),
        "applied": one.checkpoint.count,
        "events_behind": one.events_behind,
        "seconds_behind": one.behind_for.total_seconds(),
        "is_caught_up": one.is_caught_up,
        "parked_keys": one.parked_keys,
        "is_read": is_read(one),
        "worker": one.checkpoint.worker,
        "worker_seen_at": one.seen_at,
    }


def _rebuild(one: ProjectionFigures, rebuild: Rebuild) -> str:
    """Say how far a rebuild is, how fast, and what became of what people had edited."""
    parts = [f"{one.progress or 0:.0%} of {counted(rebuild.total, 'event')}"]
    end = rebuild.ended_at or one.now
    seconds = (end - rebuild.begun_at).total_seconds()
    if seconds > 0:
        parts.append(f"{one.checkpoint.count / seconds:,.0f} per second")
    if rebuild.is_cancelled:
        parts.append("cancelled")
    if rebuild.ended_at is not None:
        parts.append(f"done {ago(rebuild.ended_at, one.now)}")
    elif rebuild.rate is not None:
        parts.append(f"at most {rebuild.rate:g} per second")
    if rebuild.is_strict and rebuild.is_running and one.handed_over:
        parts.append("waits for who deals with what has failed")
    if rebuild.is_partial:
        parts.append("lacks events that had gone from the log")
    if rebuild.edits:
        parts.append(f"{counted(rebuild.edits, 'event')} as edited")
    if rebuild.erased:
        parts.append(f"{counted(rebuild.erased, 'erased event')} passed by")
    return ", ".join(parts)


def _version(one: ProjectionFigures) -> str:
    return f"{one.checkpoint.version}{'' if one.is_serving else ', beside'}"


def _behind(one: ProjectionFigures) -> str:
    return f"{one.events_behind:,}{'+' if one.is_at_least else ''}"


def reader_of(one: ProjectionFigures) -> Text:
    """Name who reads for it; that it is caught up does not mean that somebody does."""
    parts = one.parts or (one,)
    unread = [part for part in parts if not is_read(part)]
    if not unread:
        workers = sorted({part.checkpoint.worker or "" for part in parts})
        return Text(safe(workers[0]) if len(workers) == 1 else counted(len(workers), "worker"))
    who = "nobody"
    if len(unread) < len(parts):
        who = f"nobody for {len(unread)} of {counted(len(parts), 'partition')}"
    return Text(who, style="red")


def state_of(one: ProjectionFigures, gates: Sequence[GateFigures]) -> Text:
    """Say how far it is, and what holds it."""
    name = one.checkpoint.projection
    hold = next((gate.hold for gate in gates if gate.destination == name), None)
    if hold is not None:
        return Text(str(hold), style="yellow")
    if one.checkpoint.is_reset:
        return Text("begins anew", style="yellow")
    if one.is_caught_up:
        return Text("caught up", style="green")
    return Text("behind", style="yellow")
