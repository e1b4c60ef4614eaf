"""What a forked child does with the connections of its parent."""

from __future__ import annotations

from pathlib import Path

import apsw

__all__ = ["disown"]

_never_collected: list[apsw.Connection] = []


def disown(path: Path) -> None:
    """Close the connections to a file that this process has inherited.

    A child has none of its parent's locks, but SQLite's notes in memory say that it has: beside
    an inherited connection, a new one would take no lock, and the parent could remove the
    write-ahead log from under it.
    """
    for connection in apsw.connections():
        try:
            if not path.samefile(connection.filename):
                continue
            # To roll back here would undo the parent's work in the memory that both share.
            if connection.in_transaction:
                _never_collected.append(connection)
            else:
                connection.close()
        except (apsw.Error, OSError):
            _never_collected.append(connection)
