"""Tenants: what they have waiting, what they got, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.show.words import ago, counted, safe, short
from redrive.store import TenantFigures

__all__ = ["tenants"]


def tenants(
    found: Sequence[TenantFigures], *, now: datetime, limit: int
) -> Iterator[RenderableType]:
    """Show tenants, those with the most waiting first."""
    if not found:
        yield Text("No tenant yet; they come with the events that name one.")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column("Tenant", overflow="ellipsis", no_wrap=True, max_width=30)
    for column in ("Pending", "Running", "Processed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Turns", ratio=1, overflow="fold")
    for one in found:
        counts = (one.pending, one.in_flight, one.processed)
        table.add_row(_name(one), *(short(count) for count in counts), _turns(one, now))
    yield table
    if len(found) == limit:
        yield ""
        yield Text("These have the most waiting; a higher --limit shows more.", style="dim")


def _name(one: TenantFigures) -> Text:
    text = Text("no tenant", style="dim") if one.tenant is None else Text(safe(one.tenant))
    text.append(f"\n{safe(one.destination or 'everywhere')}", style="dim")
    return text


def _turns(one: TenantFigures, now: datetime) -> Text:
    if one.last_served_at is None:
        text = Text("never served", style="dim")
    else:
        text = Text(f"served {ago(one.last_served_at, now)}, {one.consecutive:,} in a row")
    if one.rounds_waited:
        waited = counted(one.rounds_waited, "round")
        text.append(f" · waits for {waited}, urgency {one.urgency}")
    if one.pause is not None:
        where = " everywhere" if one.is_paused_everywhere and one.destination else ""
        why = f": {safe(one.pause.why)}" if one.pause.why else ""
        said = f"paused{where} by {safe(one.pause.by)}, {ago(one.pause.at, now)}{why}"
        text.append(f"\n{said}", style="yellow")
    elif one.hold is not None:
        until = "" if one.until is None else f", goes on {ago(one.until, now)}"
        text.append(f"\n{one.hold.label}{until}", style="yellow")
    return text
