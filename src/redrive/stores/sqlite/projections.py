"""Batches of projections, one at a time: each holds the write lock for as long as it runs."""

from __future__ import annotations

from datetime import timedelta

import apsw

from redrive.errors import StoreError, TransactionError
from redrive.model.position import LogPosition
from redrive.store import (
    Applying,
    LogPage,
    Projected,
    Projecting,
    ReaderTurn,
    Truncating,
    open_transaction,
)
from redrive.stores.finishing import to_the_end
from redrive.stores.sql.projections import project
from redrive.stores.sqlite.connection import translated
from redrive.stores.sqlite.effects import EffectsRole
from redrive.stores.sqlite.session import SqliteSession
from redrive.stores.sqlite.transaction import SqliteTransaction

__all__ = ["ProjectingRole"]

_ENDED = (
    "A projection has ended the transaction that it was handed, so its events could not be "
    "committed together with its checkpoint; leave commit and rollback to Redrive."
)


class ProjectingRole(EffectsRole):
    """`Projections.project`."""

    async def project(
        self,
        turn: ReaderTurn,
        page: LogPage,
        apply: Applying,
        *,
        after: LogPosition,
        generation: str,
        at_most: timedelta,
        truncate: Truncating | None = None,
        create: Truncating | None = None,
    ) -> Projected:
        async with self._writing(at_most) as connection:
            transaction = SqliteTransaction(connection)
            # Whoever wrote past it from here would wait for the lock that it holds.
            here = open_transaction.set(transaction)
            try:
                with translated(self.path):
                    projected = await project(
                        SqliteSession(connection, self._clock.now(), self.codec),
                        turn,
                        page,
                        apply,
                        after=after,
                        generation=generation,
                        history=self._history,
                        connection=transaction,
                        truncate=truncate,
                        create=create,
                    )
            except StoreError:
                if transaction.is_open:
                    raise
                return Projected(ending=Projecting.CONTRADICTED, error=TransactionError(_ENDED))
            finally:
                open_transaction.reset(here)
            if projected.ending is not Projecting.KEPT:
                return projected
            if not transaction.is_open:
                return Projected(ending=Projecting.CONTRADICTED, error=TransactionError(_ENDED))
            await to_the_end(self._threads.run(self._commit, connection))
        if projected.handed_over:
            self._notify()
        transaction.committed()
        return projected

    def _commit(self, connection: apsw.Connection) -> None:
        with translated(self.path):
            connection.execute("COMMIT")
