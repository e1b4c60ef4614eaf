"""The audit log: who did what, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, counted, safe
from redrive.model.audit import AuditEntry

__all__ = ["audit"]

_MOST_IDS = 10


def audit(
    entries: Sequence[AuditEntry], *, now: datetime, limit: int, is_filtered: bool
) -> Iterator[RenderableType]:
    """Show past operations, and how to see older ones."""
    if not entries:
        yield Text("No entry fits." if is_filtered else "Nobody has changed anything yet.")
        return
    table = Listing()
    table.add_figures("ID")
    table.add_figures("When", is_text=True)
    table.add_words("Who", "What", lines="folded")
    for entry in entries:
        table.add_row(str(entry.id), ago(entry.at, now), safe(entry.by), _what(entry))
    yield table
    if len(entries) == limit:
        yield ""
        yield Text(f"Older ones: add --before {entries[-1].id}", style="dim")


def _what(entry: AuditEntry) -> Text:
    if not entry.deliveries:
        text = Text(f"{safe(entry.action.replace('_', ' '))} {safe(entry.detail)}")
        if entry.count > 1:
            text.append(f" of {counted(entry.count, 'delivery', 'deliveries')}")
    else:
        text = Text(_on_deliveries(entry))
    if entry.why:
        text.append(f"\n{safe(entry.why)}", style="dim")
    return text


def _on_deliveries(entry: AuditEntry) -> str:
    count = counted(entry.count, "delivery", "deliveries")
    shown = ", ".join(str(one) for one in entry.deliveries[:_MOST_IDS])
    more = ", …" if len(entry.deliveries) > _MOST_IDS else ""
    detail = f" to {safe(entry.detail)}" if entry.detail else ""
    return f"{safe(entry.action)} {count} ({shown}{more}){detail}"
