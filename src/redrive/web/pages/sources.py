"""Sources that the store describes: who may send us webhooks, one of them, and stopping it."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from redrive.model.rule import Stored
from redrive.store import EventQuery, FoundEvent
from redrive.web.pages.documents import VersionRow, back, text_of, version_rows
from redrive.web.pages.numbered import Numbered, Sought
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "SourceRow",
    "SourceView",
    "delete_source",
    "disable_source",
    "enable_source",
    "show_source",
    "show_sources",
]

_MOST_EVENTS = 10


class SourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A source, by which signature it is believed, and what its messages become."""

    source: Stored

    @property
    def kind(self) -> str:
        """How it signs, in words."""
        return str(self.source.document.get("kind", "")).replace("_", " ")

    @property
    def is_open(self) -> bool:
        """Whether anybody is believed who knows the address."""
        return self.source.document.get("kind") == "open"

    @property
    def event(self) -> str:
        """The type of its events, or the template of it; without one, it is as they are signed."""
        return str(self.source.document.get("event", "")) or f"{self.source.name}.…"

    @property
    def address(self) -> str:
        """Where it sends to, below the server."""
        return f"/in/{quote(self.source.name, safe='')}"


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    """A source, its versions, and the last events that it has sent."""

    row: SourceRow
    text: str
    versions: tuple[VersionRow, ...]
    events: tuple[FoundEvent, ...]


async def show_sources(visit: Visit) -> Page:
    """Show the sources that the store describes."""
    sought = Sought.by(visit)
    found = [one for one in await visit.operations.sources() if sought.fits(one.name)]
    rows = tuple(SourceRow(source=one) for one in sought.shown(found))
    model = Numbered(path="/sources", rows=rows, sought=sought, found=len(found))
    return Page(template="sources.html", title="Sources", model=model)


async def show_source(visit: Visit) -> Page:
    """Show one source, what it has sent lately, and what it was before."""
    [source] = await visit.operations.sources(name=visit.name)
    versions = await visit.operations.past_versions("source", visit.name)
    events = await visit.operations.find_events(
        EventQuery(source=visit.name), limit=_MOST_EVENTS, most_stretches=1
    )
    model = SourceView(
        row=SourceRow(source=source),
        text=text_of(source.document),
        versions=version_rows(versions),
        events=events.events,
    )
    return Page(template="source.html", title=source.name, model=model)


async def enable_source(visit: Visit) -> Moved:
    """Let a source in again."""
    await visit.operations.alter_source(visit.name, {"enabled": True}, by=visit.by, why=visit.why)
    return back("source", visit, f"{visit.name} is let in again.")


async def disable_source(visit: Visit) -> Moved:
    """Let nothing of a source in."""
    await visit.operations.alter_source(visit.name, {"enabled": False}, by=visit.by, why=visit.why)
    return back("source", visit, f"{visit.name} is disabled; its messages are turned away.")


async def delete_source(visit: Visit) -> Moved:
    """Delete a source."""
    await visit.operations.delete_source(visit.name, by=visit.by, why=visit.why)
    return Moved("/sources", f"{visit.name} was deleted; its messages are turned away.")
