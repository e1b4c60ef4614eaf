"""What erased events said goes from drained files of the journal; what waits there is told of."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive.errors import JournalError
from redrive.journal.folder import DRAINED_SUFFIX, FileState, files_of, locked, records_of
from redrive.journal.line import JournalLine, event_of, opened
from redrive.model.event import Event
from redrive.store import LineSeal

__all__ = ["Journaled", "erase_drained", "look_through"]

IsMeant = Callable[[Event[msgspec.Raw]], bool]
_ASIDE = ".erasing"


class Journaled(NamedTuple):
    """How many records of some events are in drained files, and how many wait to be drained.

    `unreadable` are the files of which nobody can tell.
    """

    drained: int = 0
    waiting: int = 0
    unreadable: tuple[str, ...] = ()


def look_through(folder: Path, is_meant: IsMeant, seal: LineSeal | None = None) -> Journaled:
    """Count the records of some events in the files of a folder."""
    drained = waiting = 0
    unreadable = []
    for file in files_of(folder):
        try:
            lines = records_of(folder, file.name)
            count = sum(_is_meant(one, is_meant, seal) for one in lines)
        except JournalError:
            unreadable.append(file.name)
            continue
        if file.state is FileState.DRAINED:
            drained += count
        else:
            waiting += count
        if any(one.damage for one in lines):
            unreadable.append(file.name)
    return Journaled(drained, waiting, tuple(unreadable))


def erase_drained(folder: Path, is_meant: IsMeant, seal: LineSeal | None = None) -> int:
    """Take the records of some events out of the files that are drained; returns how many."""
    return sum(
        _rewrite(folder / file.name, is_meant, seal)
        for file in files_of(folder)
        if file.name.endswith(DRAINED_SUFFIX)
    )


def _rewrite(path: Path, is_meant: IsMeant, seal: LineSeal | None) -> int:
    with locked(path) as is_free:
        if not is_free:
            return 0
        lines = records_of(path.parent, path.name)
        gone = [one for one in lines if _is_meant(one, is_meant, seal)]
        if not gone:
            return 0
        try:
            _replace(path, _without(path.read_bytes(), lines, gone))
        except OSError as error:
            raise JournalError(
                f"{path} cannot be written ({error.strerror}), so what was erased is still in it. "
                "Let this process write there, and erase again."
            ) from error
        return len(gone)


def _without(whole: bytes, lines: Sequence[JournalLine], gone: Sequence[JournalLine]) -> bytes:
    """Return what is in a file, but for some of its lines; each begins where another ends."""
    begins = [whole.find(b"\n") + 1, *(one.end for one in lines)]
    places = {one.end for one in gone}
    kept = [
        whole[begin : one.end]
        for begin, one in zip(begins, lines, strict=False)
        if one.end not in places
    ]
    return b"".join([whole[: begins[0]], *kept])


def _replace(path: Path, content: bytes) -> None:
    """Put a file in the place of another, and write over the bytes of that."""
    aside = path.with_suffix(_ASIDE)
    with path.open("r+b") as before:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        before.write(bytes(os.fstat(before.fileno()).st_size))
        before.flush()
        os.fsync(before.fileno())


def _is_meant(line: JournalLine, is_meant: IsMeant, seal: LineSeal | None) -> bool:
    return line.record is not None and is_meant(event_of(opened(line.record, seal)))
