"""Schedules: when they tick, what they publish, and how they fare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, counted, instant, safe
from redrive.model.duration import spell_duration
from redrive.model.schedule import Schedule
from redrive.operations import ScheduleFigures
from redrive.policies.schedule import ScheduleState

__all__ = ["schedule", "schedules"]

_STYLES = {
    ScheduleState.TICKING: "green",
    ScheduleState.LATE: "red",
    ScheduleState.PAUSED: "yellow",
    ScheduleState.STOPPED: "yellow",
}


def schedules(found: Sequence[ScheduleFigures], *, now: datetime) -> Iterator[RenderableType]:
    """Show schedules, by name."""
    if not found:
        yield Text(
            "No schedule yet; a worker brings those of its app: app.schedule(…), and the store has "
            "those that are added to it: redrive schedule add."
        )
        return
    table = Listing()
    table.add_words("Schedule")
    table.add_figures("State", is_text=True)
    table.add_figures("Next", "Last", is_text=True)
    table.add_words("What", lines="folded")
    for one in found:
        table.add_row(
            safe(one.name),
            Text(one.state, style=_STYLES[one.state]),
            "-" if one.next_at is None or not one.workers else ago(one.next_at, now),
            "-" if one.last_tick is None else ago(one.last_tick, now),
            _what(one, now),
        )
    yield table


def schedule(one: ScheduleFigures, *, now: datetime) -> Iterator[RenderableType]:
    """Show one schedule."""
    declared = one.schedule
    yield Text.assemble((safe(one.name), "bold"), "  ", Text(one.state, style=_STYLES[one.state]))
    if (trouble := _trouble(one, now)) is not None:
        yield trouble
    yield ""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("publishes", safe(declared.type))
    grid.add_row("at", _times(declared))
    for name, value in (("key", declared.key), ("tenant", declared.tenant)):
        if value is not None:
            grid.add_row(name, safe(value))
    payload = "computed by the worker's code" if declared.is_computed else safe(declared.payload)
    grid.add_row("payload", payload)
    grid.add_row("missed ticks", declared.missed)
    grid.add_row("overlap", declared.overlap)
    if one.next_at is not None and one.workers:
        grid.add_row("next", instant(one.next_at, now))
    if one.last_tick is not None:
        grid.add_row("last", instant(one.last_tick, now))
    if one.last_event is not None:
        grid.add_row("last event", safe(one.last_event))
    stored = declared.stored
    if stored:
        grid.add_row("stored", f"version {stored}")
    grid.add_row("published by" if stored else "declared by", counted(one.workers, "live worker"))
    yield grid


def _what(one: ScheduleFigures, now: datetime) -> Text:
    text = Text(f"{safe(one.schedule.type)}, {_times(one.schedule)}")
    trouble = _trouble(one, now)
    return text if trouble is None else text.append("\n").append_text(trouble)


def _times(declared: Schedule) -> str:
    if declared.every is not None:
        return f"every {spell_duration(declared.every)}"
    return f"{safe(declared.cron or '')} ({safe(declared.timezone)})"


def _trouble(one: ScheduleFigures, now: datetime) -> Text | None:
    """Say what needs a look, if anything does."""
    said = []
    if one.pause is not None:
        why = f": {safe(one.pause.why)}" if one.pause.why else ""
        said.append(f"paused by {safe(one.pause.by)}, {ago(one.pause.at, now)}{why}")
    if not one.workers and one.schedule.stored:
        said.append("no live worker serves what is stored: nothing is published")
    elif not one.workers:
        said.append("no live worker declares it: nothing is published")
    elif one.others and not one.schedule.stored:
        said.append(
            f"{counted(one.others, 'worker declares', 'workers declare')} it otherwise than is "
            "in force"
        )
    if one.run is not None:
        said.append(f"{safe(one.run.by)} asked for it, {ago(one.run.at, now)}")
    return Text("\n".join(said), style="yellow") if said else None
