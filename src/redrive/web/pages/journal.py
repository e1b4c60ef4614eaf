"""The journal: what waits on the server's own machine for the store."""

from __future__ import annotations

import msgspec

from redrive.journal.folder import FileState, JournalFile
from redrive.operations import Journal
from redrive.web.pages.page import Moved, Page, Visit

__all__ = ["JournalRow", "JournalView", "drain", "show_journal"]

_MOST_DRAINED = 20
_LEVELS = {
    FileState.DRAINED: "ok",
    FileState.BEING_WRITTEN: "ok",
    FileState.TO_DRAIN: "warning",
    FileState.DAMAGED: "error",
    FileState.NEWER: "error",
}


class JournalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and how serious its state is."""

    file: JournalFile
    level: str


class JournalView(msgspec.Struct, frozen=True, kw_only=True):
    """The files, those that need somebody first; of those that are drained only the last."""

    journal: Journal
    rows: tuple[JournalRow, ...]
    more: int


async def show_journal(visit: Visit) -> Page:
    """Show the journal of the machine that serves this page."""
    found = await visit.operations.journal()
    rows = [JournalRow(file=one, level=_LEVELS[one.state]) for one in reversed(found.files)]
    rows.sort(key=lambda one: one.file.state is FileState.DRAINED)
    open_rows = sum(one.file.state is not FileState.DRAINED for one in rows)
    shown = rows[: open_rows + _MOST_DRAINED]
    model = JournalView(journal=found, rows=tuple(shown), more=len(rows) - len(shown))
    return Page(template="journal.html", title="Journal", model=model)


async def drain(visit: Visit) -> Moved:
    """Give it to the store."""
    done = await visit.operations.drain_journal(by=visit.by, why=visit.why)
    said = f"{done.records:,} records were given to the store."
    if done.busy:
        said += " What is being written is drained by the process that writes it."
    if done.foreign:
        said += " Some of it is for another store: redrive journal drain --any-store."
    if done.left:
        said += f" {done.left[0].why}"
    return Moved("/journal", said)
