"""Effects of handlers, one at a time: each holds the write lock for as long as it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import apsw

from redrive.errors import StoreUnavailableError, TransactionError
from redrive.model.delivery import Leased
from redrive.store import AppliedLane, Effect, Ending, Following, open_transaction
from redrive.stores.finishing import to_the_end
from redrive.stores.sql.effects import settle_effect, take_effect
from redrive.stores.sql.followers import take_followers
from redrive.stores.sqlite.connection import connect, rollback, translated
from redrive.stores.sqlite.core import Core
from redrive.stores.sqlite.forking import in_transaction
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.stores.sqlite.transaction import SqliteTransaction

__all__ = ["EffectsRole"]

_SHARE_FOR_WAITING = 2


class EffectsRole(Core):
    """`Effects`."""

    async def apply(self, leased: Leased, effect: Effect, *, at_most: timedelta) -> Ending:
        return (await self._apply(leased, effect, at_most=at_most)).ending

    async def apply_lane(
        self, leased: Leased, effect: Effect, follow: Following, *, at_most: timedelta
    ) -> AppliedLane:
        return await self._apply(leased, effect, follow, at_most=at_most)

    async def _apply(
        self,
        leased: Leased,
        effect: Effect,
        follow: Following | None = None,
        *,
        at_most: timedelta,
    ) -> AppliedLane:
        followers: Sequence[Leased] = ()
        async with self._writing(at_most) as connection:
            with translated(self.path):
                session = SqliteSession(connection, self._clock.now(), self.codec)
                is_new = finish(take_effect(session, leased))
            if is_new is None:
                return AppliedLane(Ending.REFUSED)
            transaction = SqliteTransaction(connection)
            if is_new and not await self._run(transaction, effect):
                return AppliedLane(Ending.UNDONE)
            if follow is not None:
                followers = await self._follow(transaction, session, leased, follow)
            ending = await to_the_end(
                self._threads.run(
                    self._finish, connection, leased, is_new=is_new, followers=followers
                )
            )
        self._notify()
        if ending is not Ending.REFUSED:
            transaction.committed()
        return AppliedLane(ending, () if ending is Ending.REFUSED else tuple(followers))

    async def _run(self, transaction: SqliteTransaction, effect: Effect) -> bool:
        # Whoever wrote past it from here would wait for the lock that it holds.
        here = open_transaction.set(transaction)
        try:
            is_kept = await effect(transaction)
        finally:
            open_transaction.reset(here)
        if is_kept and not transaction.is_open:
            raise TransactionError(
                "The handler has ended the transaction that it was handed, so its effect could "
                "not be committed together with the delivery; leave commit and rollback to "
                "Redrive, and use SAVEPOINT for a part of it."
            )
        return is_kept

    async def _follow(
        self,
        transaction: SqliteTransaction,
        session: SqliteSession,
        leased: Leased,
        follow: Following,
    ) -> Sequence[Leased]:
        here = open_transaction.set(transaction)
        try:
            with translated(self.path):
                return await take_followers(session, leased, follow, connection=transaction)
        finally:
            open_transaction.reset(here)

    def _finish(
        self,
        connection: apsw.Connection,
        leased: Leased,
        *,
        is_new: bool,
        followers: Sequence[Leased],
    ) -> Ending:
        """Settle and commit, or find that the lease is no longer current."""
        session = SqliteSession(connection, self._clock.now(), self.codec)
        try:
            refused, _ = finish(
                settle_effect(
                    session, leased, is_new=is_new, history=self._history, followers=followers
                )
            )
            if refused:
                return Ending.REFUSED
            connection.execute("COMMIT")
        except apsw.ConstraintError:  # deferred by the handler's own tables
            raise
        except apsw.Error:
            with translated(self.path):
                raise
        return Ending.APPLIED if is_new else Ending.REPEATED

    @asynccontextmanager
    async def _writing(self, at_most: timedelta) -> AsyncIterator[apsw.Connection]:
        """Take the write lock; what is not committed by the end of the block is undone."""
        connection = await self._threads.run(connect, self.path, place=self._place)
        with in_transaction():
            try:
                await self._threads.run(self._take_lock, connection, at_most / _SHARE_FOR_WAITING)
                yield connection
            finally:
                rollback(connection)
                connection.close()

    def _take_lock(self, connection: apsw.Connection, patience: timedelta) -> None:
        connection.set_busy_timeout(int(patience.total_seconds() * 1000))
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise StoreUnavailableError(
                f"The store {self.path} was locked by another writer for {patience}, so the "
                "handler was not run."
            ) from error
        except apsw.Error:
            with translated(self.path):
                raise
