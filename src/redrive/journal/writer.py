"""The writer: appends records to the file of this process, and lets go of what is full."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Literal, get_args

from redrive.clock import Clock
from redrive.errors import ConfigurationError, JournalError, SecretError
from redrive.journal.folder import FILE_SUFFIX
from redrive.journal.line import Record, write_header, write_record
from redrive.store import LineSeal

__all__ = ["JournalWriter", "Sync", "check_sync"]

Sync = Literal["always", "interval", "never"]
"""When what was written is flushed: with each write, once a second, or by the system."""

_MOST_PER_FILE = 10 * 10**6
_KEPT = timedelta(days=30)
_SECONDS = 1.0
_READABLE_BY_OWNER = 0o600


def check_sync(value: object) -> Sync:
    """Return the policy, or say what is wrong with it."""
    for word in get_args(Sync):
        if value == word:
            return word  # type: ignore[no-any-return]  # it is one of them
    words = ", ".join(get_args(Sync))
    raise ConfigurationError(f"journal_sync is {value!r}; it is one of {words}.")


class JournalWriter:
    """Writes the journal of one process; any thread may call it, and blocks while it writes."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        host: str,
        store: str = "",
        sync: Sync = "always",
        size: int = _MOST_PER_FILE,
        keep: timedelta = _KEPT,
        seal: LineSeal | None = None,
    ) -> None:
        self.folder = folder
        self.store = store
        """For which store it writes."""
        self.keep = keep
        """How long files stay that are drained."""
        self._clock = clock
        self._host = host
        self.seal = seal
        """What encrypts, and decrypts, while the store is encrypted."""
        self._sync = sync
        self._size = size
        self._lock = threading.Lock()
        self._file: int | None = None
        self._length = 0
        self._day: date | None = None
        self._synced_at = 0.0
        self._number = 0

    def append(self, records: Sequence[Record]) -> None:
        """Write records; they are durable when this returns, if that is the policy.

        All of them are written, or none, and `JournalError` says why.
        """
        try:
            lines = b"".join(write_record(one, self.seal) for one in records)
        except SecretError as error:
            raise JournalError(f"What was to go to the journal is not kept: {error}") from error
        with self._lock:
            try:
                self._append(lines)
            except OSError as error:
                raise JournalError(
                    f"The journal in {self.folder} cannot be written ({error.strerror}), so what "
                    f"was to go there is not kept. {_advice(error)}"
                ) from error

    def let_go(self) -> None:
        """Close the file that is being written, so that it can be drained."""
        with self._lock:
            self._close()

    def forget_parent(self) -> None:
        """After a fork: leave the parent's file, and its lock, to the parent."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
        self._file = None
        self._lock = threading.Lock()

    def _append(self, lines: bytes) -> None:
        now = self._clock.now()
        is_full = self._length and self._length + len(lines) > self._size
        if self._file is not None and (is_full or self._day != now.date()):
            self._close()
        while self._file is None:
            self._begin()
        file = self._file
        assert file is not None  # noqa: S101 - it was just begun
        try:
            _write_all(file, lines)
            self._flush(file)
        except OSError:
            # Half a record is cut off, or the next one would be taken for a part of it.
            with suppress(OSError):
                os.ftruncate(file, self._length)
            raise
        self._length += len(lines)

    def _begin(self) -> None:
        now = self._clock.now()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        host = "".join(one if one.isalnum() else "-" for one in self._host)[:40] or "host"
        name = f"{now:%Y%m%d-%H%M%S-%f}-{host}-{os.getpid()}-{self._number}{FILE_SUFFIX}"
        path = self.folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, _READABLE_BY_OWNER)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if not path.exists():  # somebody drained it, empty, before it was locked
            os.close(self._file)
            self._file = None
            return
        header = write_header(host=self._host, process=os.getpid(), began=now, store=self.store)
        self._length, self._day = len(header), now.date()
        try:
            _write_all(self._file, header)
            if self._sync != "never":
                os.fsync(self._file)
                _sync_folder(self.folder)
        except OSError:
            with suppress(OSError):
                path.unlink()
            os.close(self._file)
            self._file, self._length = None, 0
            raise

    def _flush(self, file: int) -> None:
        now = self._clock.monotonic()
        if self._sync == "always" or (
            self._sync == "interval" and now - self._synced_at >= _SECONDS
        ):
            os.fsync(file)
            self._synced_at = now

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                if self._sync != "never":
                    os.fsync(self._file)
            os.close(self._file)
        self._file, self._length, self._day = None, 0, None


def _write_all(file: int, lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _advice(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "Make room on that disk, or point the setting journal at another one."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return "Let this process write there, or point the setting journal somewhere else."
        case _:
            return "Look at that disk, or point the setting journal somewhere else."
