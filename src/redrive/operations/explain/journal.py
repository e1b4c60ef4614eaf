"""What the files of a journal say about its health."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from redrive.journal.folder import FileState, JournalFile
from redrive.model.duration import rough_duration
from redrive.store import Finding, Level

__all__ = ["journal_findings"]


def journal_findings(
    files: Sequence[JournalFile], *, host: str, now: datetime, store: str = ""
) -> Iterator[Finding]:
    """Say what of a machine's journal needs somebody; nothing while there is nothing."""
    newer = [one for one in files if one.state is FileState.NEWER]
    damaged = [one for one in files if one.state is not FileState.NEWER and one.problem]
    left = [one for one in files if one.waiting and one.state is not FileState.DAMAGED]
    foreign = [one for one in left if store and one.store not in {"", store}]
    waiting = sum(one.waiting for one in left if one not in foreign)
    if damaged:
        yield Finding(
            level=Level.ERROR,
            what=f"{_files(damaged)} of the journal on {host} cannot be read as a whole: "
            f"{damaged[0].name}: {damaged[0].problem}.",
            advice="What can be read is given to the store all the same. See which lines with: "
            "redrive journal verify, and remove the file when you have seen to them",
        )
    if newer:
        yield Finding(
            level=Level.WARNING,
            what=f"{_files(newer)} of the journal on {host} were written by a newer Redrive, which "
            "this one leaves as they are.",
            advice="Drain them with that release: redrive journal drain",
        )
    if foreign:
        yield Finding(
            level=Level.WARNING,
            what=f"{_files(foreign)} of the journal on {host} wait for another store, "
            f"{foreign[0].store}.",
            advice="Drain them where that is the store, or, if this one has moved: "
            "redrive journal drain --any-store",
        )
    if waiting:
        since = rough_duration(now - min(one.changed_at for one in left if one not in foreign))
        yield Finding(
            level=Level.WARNING,
            what=f"{waiting:,} {'record waits' if waiting == 1 else 'records wait'} in the journal "
            f"on {host} for the store, some for {since}.",
            advice="Processes that track drain it by themselves. By hand: redrive journal drain",
        )


def _files(some: Sequence[JournalFile]) -> str:
    return "1 file" if len(some) == 1 else f"{len(some):,} files"
