"""The caller's own transaction on the store's file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

__all__ = ["SqliteTransaction"]


class SqliteTransaction:
    """An open transaction for your own tables, which `publish(within=...)` joins.

    It holds SQLite's one write lock: keep it short, and do no network call inside it.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        """The apsw connection, for what `execute` does not cover. Do not commit on it."""
        self._after_commit: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the block is not over yet, and nobody has committed behind its back."""
        try:
            return self.connection.in_transaction
        except apsw.ConnectionClosedError:
            return False

    def is_in_transaction(self) -> bool:
        """Tell the same as connections of asyncpg do."""
        return self.is_open

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it when the block has ended and committed; never if it has not."""
        self._after_commit.append(then)

    def committed(self) -> None:
        """Tell whoever waits for the commit; the store does."""
        for then in self._after_commit:
            then()
        self._after_commit.clear()

    def execute(
        self, sql: str, bindings: Sequence[Any] | dict[str, Any] | None = None
    ) -> apsw.Cursor:
        """Run a statement; iterate the cursor for its rows."""
        return self.connection.execute(sql, bindings)

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> apsw.Cursor:
        """Run a statement once for each sequence of bindings."""
        return self.connection.executemany(sql, many)
