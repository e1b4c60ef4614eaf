"""The journal: its files, their records, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, counted, safe
from redrive.journal.draining import Drained
from redrive.journal.folder import FileState
from redrive.operations import Journal, JournalPage

__all__ = ["drained", "files", "records", "verdict"]

_STYLES = {
    FileState.BEING_WRITTEN: "green",
    FileState.TO_DRAIN: "yellow",
    FileState.DRAINED: "dim",
    FileState.DAMAGED: "bold red",
    FileState.NEWER: "bold red",
}


def files(journal: Journal, *, now: datetime) -> Iterator[RenderableType]:
    """Show the files, the oldest first, and where they are."""
    if not journal.files:
        yield Text(f"The journal of {_place(journal)} is empty: the store has taken everything.")
        return
    table = Listing()
    table.add_words("File")
    table.add_words("State", lines="folded")
    table.add_figures("Waiting", "Records", "Bytes")
    table.add_figures("Changed", is_text=True)
    for one in journal.files:
        state = Text(one.state, style=_STYLES[one.state])
        changed = ago(one.changed_at, now)
        figures = (f"{one.waiting:,}", f"{one.records:,}", f"{one.size:,}")
        table.add_row(safe(one.name), state, *figures, changed)
    yield table
    others = sorted({one.store for one in journal.files if one.waiting and one.store})
    if len(others) > 1:
        yield Text(f"They are for several stores: {safe(', '.join(others))}.")
    yield Text(f"{counted(journal.waiting, 'record waits', 'records wait')} in {_place(journal)}.")


def records(page: JournalPage) -> Iterator[RenderableType]:
    """Show records, in the order in which they were written."""
    if not page.records:
        yield Text("There is no such record in it.")
        return
    table = Listing()
    table.add_figures("Ends")
    table.add_words("Kind", "Event", "Type", "Key", "Tenant")
    table.add_words("For", lines="folded")
    for one in page.records:
        if one.damage:
            table.add_row(f"{one.end}", "damaged", "", "", "", "", safe(one.damage))
        else:
            names = ", ".join(one.destinations)
            words = (one.kind, one.event_id, one.event_type, one.key or "", one.tenant or "", names)
            table.add_row(f"{one.end}", *map(safe, words))
    yield table
    if page.next is not None:
        yield Text(f"There are more; go on with: --after {page.next}")


def drained(done: Drained) -> str:
    """Say what became of the records."""
    said = f"Gave {counted(done.records, 'record')} to the store."
    if done.refused:
        said += f" {counted(done.refused, 'was', 'were')} refused, and became dead letters."
    if done.unrouted:
        said += f" {counted(done.unrouted, 'is', 'are')} wanted by nobody."
    if done.damaged:
        said += f" {counted(done.damaged, 'line')} cannot be read, and stay in a file of their own."
    if done.foreign:
        said += f" {counted(done.foreign, 'file is', 'files are')} for another store."
    if done.busy:
        said += f" {counted(done.busy, 'file is', 'files are')} left to who writes them."
    return said


def verdict(journal: Journal) -> Iterator[RenderableType]:
    """Say of each file what is wrong with it, or that all is well."""
    for one in journal.files:
        if one.problem:
            damage = f" ({counted(one.damaged, 'line')})" if one.damaged else ""
            yield Text(safe(f"{one.name}: {one.problem}{damage}"), style="bold red")
    count = sum(one.records for one in journal.files)
    broken = sum(bool(one.problem) for one in journal.files)
    whole = counted(len(journal.files) - broken, "file is", "files are")
    yield Text(
        f"{whole} whole and {broken:,} not; {counted(count, 'record')} can be read. "
        f"They are in {_place(journal)}."
    )


def _place(journal: Journal) -> str:
    return safe(f"{journal.folder} on {journal.host}")
