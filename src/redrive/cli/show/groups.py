"""Groups: dead letters by what they failed of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, brief, counted, safe, short
from redrive.store import Group

__all__ = ["groups"]


def groups(
    found: Sequence[Group], *, now: datetime, limit: int, is_filtered: bool, outdated: int
) -> Iterator[RenderableType]:
    """Show groups, each with what its letters share and whose they are."""
    if not found:
        yield Text(f"No dead letter{' fits' if is_filtered else ''}.")
        return
    table = Listing()
    table.add_figures("Group", is_text=True)
    table.add_figures("Count")
    table.add_figures("Last seen", is_text=True)
    table.add_words("What")
    for one in found:
        table.add_row(safe(one.id), short(one.count), ago(one.last_seen, now), _lines(one, now))
    yield table
    if len(found) == limit:
        yield ""
        yield Text("These are the largest; a higher --limit shows more.", style="dim")
    if outdated:
        letters = counted(outdated, "dead letter")
        yield ""
        yield Text(f"Still to be regrouped by a worker since the upgrade: {letters}.", style="dim")


def _lines(group: Group, now: datetime) -> Text:
    text = Text(brief(safe(group.title)))
    about = [safe(group.destination), f"first seen {ago(group.first_seen, now)}"]
    if group.top_tenants:
        names = ", ".join(f"{safe(name)} {short(count)}" for name, count in group.top_tenants)
        about.append(f"tenants {names}")
    text.append(f"\n{' · '.join(about)}", style="dim")
    said = " ".join(group.message.split())
    if said not in group.title:
        text.append(f"\nsuch as {group.example}: {safe(said)}", style="dim")
    return text
