"""Publishing to the SQLite store, by itself or within the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import apsw

from redrive.errors import StoreUnavailableError, TransactionError
from redrive.store import (
    Append,
    CaughtUp,
    Entry,
    RoutesChanged,
)
from redrive.stores.sql.log import read_routes
from redrive.stores.sqlite.append import append
from redrive.stores.sqlite.connection import connect, rollback, translated
from redrive.stores.sqlite.core import Core
from redrive.stores.sqlite.forking import in_transaction
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.stores.sqlite.transaction import SqliteTransaction

__all__ = ["PublishingRole"]

T = TypeVar("T")


_PATIENCE_SECONDS = 30


class PublishingRole(Core):
    """What is written of `EventLog`, and transactions for the caller's own tables."""

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        def job(connection: apsw.Connection) -> Append:
            now = self._clock.now()
            appended = append(
                connection,
                entries,
                routes_version=routes_version,
                all_or_nothing=all_or_nothing,
                now=now,
                codec=self.codec,
            )
            if appended is None:
                return RoutesChanged(
                    finish(read_routes(SqliteSession(connection, now, self.codec)))
                )
            return appended

        if within is not None:
            return self._join(within, job)
        appended = await self._writer.call(job)
        if not isinstance(appended, RoutesChanged):
            self._notify()
        return appended

    def _join(self, within: object, job: Callable[[apsw.Connection], T]) -> T:
        if not isinstance(within, SqliteTransaction):
            raise TransactionError(_refusal(within))
        if not within.is_open:
            raise TransactionError(
                "within= got a transaction that is over; nothing was stored. "
                "Publish inside its `async with app.transaction()` block."
            )
        connection = within.connection
        if not self.path.samefile(connection.filename):
            raise TransactionError(
                f"within= got a transaction on {connection.filename}, but this app keeps its "
                f"events in {self.path}; open the transaction with the same app."
            )
        with translated(self.path):
            connection.execute("SAVEPOINT redrive")
            try:
                result = job(connection)
            except BaseException:
                if connection.in_transaction:  # a full disk makes SQLite undo all of it by itself
                    connection.execute("ROLLBACK TO redrive")
                    connection.execute("RELEASE redrive")
                raise
            connection.execute("RELEASE redrive")
        return result

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """Open a transaction; it commits at the end of the block, or rolls back on an error."""
        async with self._taking_turns():
            connection = await self._threads.run(connect, self.path, place=self._place)
            with in_transaction():
                try:
                    await self._threads.run(self._execute, connection, "BEGIN IMMEDIATE")
                    transaction = SqliteTransaction(connection)
                    yield transaction
                    await self._threads.run(self._execute, connection, "COMMIT")
                finally:
                    rollback(connection)
                    connection.close()
        self._notify()
        transaction.committed()

    @asynccontextmanager
    async def _taking_turns(self) -> AsyncIterator[None]:
        """Have the only transaction of this store: others wait here, not for the lock of the file.

        Asking SQLite again and again, they would take the time that the one needs to end.
        """
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            raise StoreUnavailableError(
                f"The store {self.path} was locked by other transactions of this process for "
                f"{_PATIENCE_SECONDS} s. Look for one that was left open."
            ) from None
        try:
            yield
        finally:
            self._one_at_a_time.release()

    def _execute(self, connection: apsw.Connection, statement: str) -> None:
        with translated(self.path):
            connection.execute(statement)

    async def catch_up(self) -> CaughtUp:
        """Nothing: whoever publishes or registers has the write lock to themselves."""
        return CaughtUp()


def _refusal(within: object) -> str:
    if type(within).__module__.startswith("sqlite3"):
        return (
            "within= got a connection of the standard library's sqlite3. Two SQLite libraries in "
            "one process break each other's file locks and can lose committed events, so Redrive "
            "refuses it; use `async with app.transaction() as tx` for your own tables."
        )
    return (
        f"within= got {type(within).__name__}; on SQLite only a transaction from "
        "`app.transaction()` can be joined."
    )
