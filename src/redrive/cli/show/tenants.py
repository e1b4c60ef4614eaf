"""Tenants: what they have waiting, what they got, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
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
    table = Listing()
    table.add_words("Tenant")
    table.add_figures("Pending", "Running", "Processed")
    table.add_words("Turns", lines="folded")
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
