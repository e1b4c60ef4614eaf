"""Connections to one SQLite file: how they are opened, and what their errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from redrive.errors import (
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from redrive.model.projection import spread
from redrive.stores.sqlite.forking import refuse_spoiled

__all__ = ["Place", "connect", "let_go", "rollback", "rows", "translated"]

_SHORT_WAITS = 500
_MOST_WAITS = 6_400
"""Half a second of short waits for the lock, then long ones: 30 s in all."""
_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_size = -16000",
)


class Place:
    """Where an open file lies; removed or replaced, it would take what nobody ever finds again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = self._look()

    def check(self) -> None:
        """Refuse to go on when the path leads to no file, or to another."""
        if self._look() != self._identity:
            raise StoreUnavailableError(
                f"The file {self._path} was removed or replaced while this process had it open; "
                "nothing of this call was stored. Put it back, together with its -wal file, or "
                "start this process again to go on with what is there now."
            )

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


def connect(path: Path, *, place: Place | None = None) -> apsw.Connection:
    """Open the file, creating it if its folder exists; with `place`, only where it was."""
    if place is not None:
        place.check()
    with translated(path):
        if path.is_dir():
            raise StoreUnavailableError(
                f"The store path {path} is a folder; name a file in it, such as {path}/redrive.db."
            )
        if not path.parent.exists():
            raise StoreUnavailableError(
                f"The store {path} cannot be created: the folder {path.parent} does not exist. "
                "Create the folder, or choose another path."
            )
        refuse_spoiled(path)
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_handler(_wait_for_the_lock)
            # SQLite's own lower() knows of no letter but A to Z.
            connection.create_scalar_function("casefold", _casefold, 1, deterministic=True)
            connection.create_scalar_function("spread", _spread, 1, deterministic=True)
            _write_ahead(connection)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection


def _casefold(*texts: apsw.SQLiteValue) -> str | None:
    (text,) = texts
    return text.casefold() if isinstance(text, str) else None


def _spread(*texts: apsw.SQLiteValue) -> int:
    (text,) = texts
    return spread(str(text))


def _write_ahead(connection: apsw.Connection) -> None:
    """Let the file have a write-ahead log: SQLite itself does not wait for a lock here."""
    for waits in count():
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if not _wait_for_the_lock(waits):
                raise
        else:
            return


def _wait_for_the_lock(waits: int) -> bool:
    """Ask again soon: SQLite's own pauses grow to 100 ms and starve beside a busy writer."""
    if waits >= _MOST_WAITS:
        return False
    apsw.sleep(1 if waits < _SHORT_WAITS else 5)
    return True


def rows(connection: apsw.Connection, statement: str, bindings: Any = None) -> list[Any]:  # noqa: ANN401 - what apsw takes
    """Return all rows at once: a cursor left half read would hold on to its snapshot."""
    return connection.execute(statement, bindings).fetchall()


def let_go(connection: apsw.Connection) -> None:
    """Close it. What cannot be moved from the log to the file on that occasion stays in the log."""
    with suppress(apsw.Error):
        connection.close()


def rollback(connection: apsw.Connection) -> None:
    """End an open transaction, if SQLite or whoever closed the connection has not yet."""
    with suppress(apsw.ConnectionClosedError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: the one place where that happens."""
    try:
        yield
    except apsw.Error as error:
        raise _ours(error, path) from error


_MEANINGS: tuple[tuple[tuple[type[apsw.Error], ...], type[StoreError], str], ...] = (
    (
        (apsw.FullError,),
        StoreFullError,
        (
            "The disk under {path} is full; nothing of this call was stored. "
            "Free some space and try again."
        ),
    ),
    (
        (apsw.NotADBError,),
        StoreCorruptError,
        "{path} is not a SQLite database. Choose another path, or move the file away.",
    ),
    (
        (apsw.CorruptError,),
        StoreCorruptError,
        (
            "The store {path} is damaged ({error}). Stop all workers, keep a copy of the file, and "
            "restore a backup or recover it with: sqlite3 FILE .recover"
        ),
    ),
    (
        (apsw.BusyError, apsw.LockedError),
        StoreUnavailableError,
        (
            "The store {path} was locked by another writer for 30 s. "
            "Look for a transaction that was left open."
        ),
    ),
    (
        (apsw.CantOpenError,),
        StoreUnavailableError,
        (
            "The store {path} cannot be opened. Check that the folder exists and that this user "
            "may write in it."
        ),
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError),
        StoreReadOnlyError,
        (
            "The store {path} cannot be written. Give this user the right to write the file and "
            "its folder (SQLite keeps its log beside the file)."
        ),
    ),
    ((apsw.Error,), StoreUnavailableError, "The store {path} failed: {error}."),
)


def _ours(error: apsw.Error, path: Path) -> StoreError:
    return next(
        ours(message.format(path=path, error=error))
        for theirs, ours, message in _MEANINGS
        if isinstance(error, theirs)
    )
