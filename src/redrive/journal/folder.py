"""The folder of the journal: which files there are, what they hold, and which may go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from redrive.clock import Clock
from redrive.errors import JournalError, not_found
from redrive.journal.line import JournalLine, is_newer, read_header, read_lines
from redrive.store import LineSeal

__all__ = [
    "DAMAGED_SUFFIX",
    "DRAINED_SUFFIX",
    "FILE_SUFFIX",
    "FileState",
    "JournalFile",
    "JournalPlace",
    "JournalSize",
    "expire",
    "files_of",
    "locked",
    "progress_of",
    "records_of",
    "size_of",
    "to_drain",
    "write_progress",
]

FILE_SUFFIX = ".jsonl"
DRAINED_SUFFIX = ".drained"
DAMAGED_SUFFIX = ".damaged"
_PROGRESS_SUFFIX = ".progress"
_PIECE = 2**20


class FileState(StrEnum):
    """What a file of the journal waits for."""

    BEING_WRITTEN = "being written"
    TO_DRAIN = "to drain"
    DRAINED = "drained"
    DAMAGED = "damaged"
    NEWER = "newer version"


_STATES = {
    FILE_SUFFIX: FileState.TO_DRAIN,
    DRAINED_SUFFIX: FileState.DRAINED,
    DAMAGED_SUFFIX: FileState.DAMAGED,
}


class JournalFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the journal: how many records it has that can be read, and how many are drained.

    `damaged` counts lines that cannot be read, and `problem` says what is wrong with the file;
    `store` is the one that it is for. A file that is drained is read only to verify it.
    """

    name: str
    state: FileState
    size: int
    changed_at: datetime
    records: int = 0
    drained: int = 0
    damaged: int = 0
    problem: str = ""
    store: str = ""

    @property
    def waiting(self) -> int:
        """How many records the store still has to be given."""
        return 0 if self.state is FileState.DRAINED else self.records - self.drained


class JournalPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal of a process is, for which store, and how long what is drained stays."""

    host: str
    folder: Path
    store: str
    keep: timedelta
    seal: LineSeal | None = None


class JournalSize(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of one state: what a look at the folder tells, without reading files."""

    files: int = 0
    bytes: int = 0


def files_of(folder: Path, *, verify: bool = False) -> list[JournalFile]:
    """Return what there is, the oldest first; an empty list if there is no such folder."""
    return [_described(path, verify=verify) for path in _paths(folder)]


def size_of(folder: Path) -> dict[FileState, JournalSize]:
    """Return how much is to be drained, is drained, and is damaged."""
    sizes = dict.fromkeys(_STATES.values(), JournalSize())
    for path in _paths(folder):
        with suppress(OSError):
            state, size = _STATES[path.suffix], path.stat().st_size
            before = sizes[state]
            sizes[state] = JournalSize(files=before.files + 1, bytes=before.bytes + size)
    return sizes


def to_drain(folder: Path) -> list[Path]:
    """Return the files that are not drained yet, the oldest first."""
    return [path for path in _paths(folder) if path.suffix == FILE_SUFFIX]


def records_of(folder: Path, name: str) -> Sequence[JournalLine]:
    """Return the lines of one file."""
    for path in _paths(folder):
        if path.name == name:
            try:
                read_header(path)
                return list(read_lines(path))
            except OSError as error:
                raise JournalError(f"{path} cannot be read ({error.strerror}).") from error
    raise not_found(name, [path.name for path in _paths(folder)], what="file of the journal")


def expire(folder: Path, keep: timedelta, *, clock: Clock) -> list[str]:
    """Remove files that were drained so long ago, and return their names; others never expire."""
    gone = []
    for path in _paths(folder):
        if path.suffix == DRAINED_SUFFIX:
            with suppress(OSError):
                if clock.now() - _changed_at(path) > keep:
                    path.unlink()
                    gone.append(path.name)
    return gone


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, if nobody else does; what is being written is somebody's."""
    descriptor = _opened(path)
    if descriptor is None:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        # Whoever had it may have drained it meanwhile, and given it another name.
        yield path.exists()
    finally:
        os.close(descriptor)


def progress_of(path: Path) -> int:
    """Return how far a file was drained: the place behind the last record that was."""
    try:
        return int(_progress(path).read_bytes())
    except (FileNotFoundError, ValueError):  # never begun, or torn: what is repeated is known
        return 0


def write_progress(path: Path, place: int) -> None:
    """Remember how far a file was drained.

    Where that cannot be written, as on a full disk, a drain goes on: what it repeats is known.
    """
    with suppress(OSError), _progress(path).open("wb") as file:
        file.write(b"%d" % place)
        file.flush()
        os.fsync(file.fileno())


def _opened(path: Path) -> int | None:
    """Open a file to lock it; a disk that takes no writes has files to be looked at as well."""
    try:
        how = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
        return os.open(path, how | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(
            f"{path} cannot be opened ({error.strerror}). Let this process read and write it."
        ) from error


def _progress(path: Path) -> Path:
    return path.with_suffix(_PROGRESS_SUFFIX)


def _paths(folder: Path) -> list[Path]:
    suffixes = (FILE_SUFFIX, DRAINED_SUFFIX, DAMAGED_SUFFIX)
    try:
        return sorted(
            (one for one in folder.iterdir() if one.suffix in suffixes), key=lambda one: one.name
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _described(path: Path, *, verify: bool) -> JournalFile:
    size, changed_at = 0, datetime.fromtimestamp(0, UTC)
    state = _STATES[path.suffix]
    try:
        size, changed_at = path.stat().st_size, _changed_at(path)
        if state is FileState.DRAINED and not verify:
            count = max(0, _lines_in(path) - 1)
            return JournalFile(
                name=path.name,
                state=state,
                size=size,
                changed_at=changed_at,
                records=count,
                drained=count,
            )
        if is_newer(path):
            state = FileState.NEWER
        header = read_header(path)
        lines = list(read_lines(path))
        with locked(path) as is_free:
            if state is FileState.TO_DRAIN and not is_free:
                state = FileState.BEING_WRITTEN
    except (JournalError, OSError) as error:
        return JournalFile(
            name=path.name,
            state=FileState.DAMAGED if state is FileState.TO_DRAIN else state,
            size=size,
            changed_at=changed_at,
            problem=str(error),
        )
    whole = [one for one in lines if one.record is not None]
    place = progress_of(path)
    return JournalFile(
        name=path.name,
        state=state,
        size=size,
        changed_at=changed_at,
        records=len(whole),
        drained=len(whole)
        if path.suffix != FILE_SUFFIX
        else sum(one.end <= place for one in whole),
        damaged=len(lines) - len(whole),
        store="" if header is None else header.store,
        problem=next((f"a line cannot be read: {one.damage}" for one in lines if one.damage), ""),
    )


def _lines_in(path: Path) -> int:
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(_PIECE), b""))


def _changed_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
