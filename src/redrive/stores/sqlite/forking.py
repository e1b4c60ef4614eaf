"""Forks: what threads inside SQLite hold when one happens, and what the child does with it.

A fork copies every lock as it is held at that moment, but not the threads that would let go of it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from redrive.errors import StoreUnavailableError
from redrive.store import open_transaction

__all__ = ["disown", "in_transaction", "refuse_spoiled", "undisturbed"]

_PATIENCE_SECONDS = 5.0
"""How long a fork waits for those inside SQLite; most are out in a few milliseconds."""

_never_collected: list[apsw.Connection] = []
_spoiled: set[tuple[int, int]] = set()


class _Threshold:
    """Who is inside SQLite: in a step that ends by itself, or in a transaction of a loop's thread.

    A step of a transaction that is open goes on while somebody forks, or it would never end.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Have nobody inside, as a process has that was forked: it has none of the threads."""
        self._changed = threading.Condition()
        self._steps: Counter[int] = Counter()
        self._transactions: Counter[int] = Counter()
        self._is_forking = False

    @contextmanager
    def step(self, *, of: int) -> Iterator[None]:
        """Be inside for a moment, on behalf of a thread; whoever forks waits for its end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking or self._transactions[of] > 0)
        with self._counted(self._steps):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Have a transaction open, which this thread must go on to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking)
        with self._counted(self._transactions):
            yield

    @contextmanager
    def _counted(self, inside: Counter[int]) -> Iterator[None]:
        thread = threading.get_ident()
        with self._changed:
            inside[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                inside[thread] -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in, and wait until everybody is out whom this thread does not keep inside."""
        thread = threading.get_ident()
        is_mine = open_transaction.get() is not None

        def is_empty() -> bool:
            inside = self._steps if is_mine else self._steps + self._transactions
            return not any(count for one, count in inside.items() if one != thread)

        with self._changed:
            self._is_forking = True
            self._changed.wait_for(is_empty, _PATIENCE_SECONDS)

    def open(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._is_forking = False
            self._changed.notify_all()


_threshold = _Threshold()


@contextmanager
def undisturbed(*, of: int | None = None) -> Iterator[None]:
    """Use SQLite for a moment without a fork in between, on behalf of this thread or another."""
    with _threshold.step(of=threading.get_ident() if of is None else of):
        yield


@contextmanager
def in_transaction() -> Iterator[None]:
    """Have a transaction open; who forks meanwhile waits for its end, if that can come."""
    with _threshold.transaction():
        yield


def disown(path: Path) -> None:
    """Close the connections to a file that this process has inherited.

    A child has none of its parent's locks, but SQLite's notes in memory say that it has: beside
    an inherited connection, a new one would take no lock, and the parent could remove the
    write-ahead log from under it. Where one cannot be closed, the child keeps away from the file.
    """
    for connection in apsw.connections():
        try:
            if not path.samefile(connection.filename):
                continue
            # To roll back here would undo the parent's work in the memory that both share.
            if not connection.in_transaction:
                connection.close()
                continue
        except (apsw.Error, OSError):
            pass
        _never_collected.append(connection)
        _spoil(path)


def _spoil(path: Path) -> None:
    try:
        status = path.stat()
    except OSError:  # then there is nothing to keep away from
        return
    _spoiled.add((status.st_dev, status.st_ino))


def refuse_spoiled(path: Path) -> None:
    """Say why this process cannot use the file, if that is so; otherwise it would wait in vain."""
    if not _spoiled or not path.exists():
        return
    status = path.stat()
    if (status.st_dev, status.st_ino) in _spoiled:
        raise StoreUnavailableError(
            f"This process was forked while its parent had a transaction on {path} open, so it "
            "cannot use that store. Fork outside of transactions, or start the child as a new "
            'program, as multiprocessing does with the start method "spawn".'
        )


os.register_at_fork(
    before=_threshold.close, after_in_parent=_threshold.open, after_in_child=_threshold.begin
)
