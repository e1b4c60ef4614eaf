"""Batches of projections, each on a connection of its own for as long as it runs."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from redrive.errors import TransactionError
from redrive.model.position import LogPosition
from redrive.store import Applying, LogPage, Projected, Projecting, ReaderTurn, Truncating
from redrive.stores.finishing import to_the_end
from redrive.stores.postgres.connection import translated
from redrive.stores.postgres.effects import EffectsRole, begin_effect, still_open
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.projections import project

__all__ = ["ProjectingRole"]

_SPOILED = (asyncpg.InFailedSQLTransactionError, asyncpg.NoActiveSQLTransactionError)
_WENT_ON = (
    "The function went on after the database had refused a statement of it, or has ended the "
    "transaction ({}), so that nothing can be committed; put what may fail into `async with "
    "model.connection.transaction():`, and leave commit and rollback to Redrive."
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
        async with self._effects, self._room() as room:
            session = PostgresSession(room.connection, self.address.schema, self.codec)
            with translated(self.address):
                session.now = session.present = await self._now(session)
                number = await begin_effect(session, at_most=at_most)
                try:
                    projected = await project(
                        session,
                        turn,
                        page,
                        apply,
                        after=after,
                        generation=generation,
                        history=self._history,
                        connection=room.connection,
                        truncate=truncate,
                        create=create,
                    )
                except _SPOILED as error:
                    said = TransactionError(_WENT_ON.format(error))
                    return Projected(ending=Projecting.CONTRADICTED, error=said)
                if projected.ending is not Projecting.KEPT:
                    return projected
                await still_open(session, number)
                room.is_open = False
                try:
                    await to_the_end(room.transaction.commit())
                except asyncpg.IntegrityConstraintViolationError as error:
                    return Projected(ending=Projecting.CONTRADICTED, error=error)
        if projected.handed_over:
            self._notifications.notify()
        return projected
