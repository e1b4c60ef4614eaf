"""Effects of handlers, each on a connection of its own for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from redrive.errors import StoreUnavailableError, TransactionError
from redrive.model.delivery import Leased
from redrive.store import Effect, Ending
from redrive.stores.finishing import to_the_end
from redrive.stores.postgres import effects
from redrive.stores.postgres.connection import LOST, Connection, Link, translated
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.effects import Entered
from redrive.stores.postgres.pool import CONNECT_SECONDS, drop, stand_in

__all__ = ["EffectsRole"]

_CLEANING_SECONDS = 2.0
_NOT_THE_HANDLERS_FAULT = (
    *LOST,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
)


class _Room:
    """A connection in a transaction that is still to be ended."""

    __slots__ = ("connection", "is_open", "line", "transaction")

    def __init__(self, line: Connection, connection: Any, transaction: Any) -> None:  # noqa: ANN401
        self.line = line
        self.connection = connection
        # The driver's own, so that a handler's `connection.transaction()` is a savepoint in it.
        # Not of another isolation: a heartbeat changes the delivery that is settled in the end.
        self.transaction = transaction
        self.is_open = True


class EffectsRole(Core):
    """`Effects`."""

    async def apply(self, leased: Leased, effect: Effect, *, at_most: timedelta) -> Ending:
        async with self._effects, self._room() as room:
            link = Link(room.connection, self.address.schema)
            with translated(self.address):
                now = await self._now(link)
                entered = await effects.enter(link, leased, at_most=at_most, now=now)
            if entered is None:
                return Ending.REFUSED
            if entered.is_new:
                is_done = await effect(room.connection)
                self._check_line(room)
                if not is_done:
                    return Ending.UNDONE
            ending, frees = await to_the_end(self._finish(room, link, leased, entered))
        if frees:
            self._notifications.notify()
        return ending

    def _check_line(self, room: _Room) -> None:
        """Raise if the handler has closed its connection, or it was lost."""
        if room.line.was_closed:
            raise TransactionError(
                "The handler has closed the connection that it was handed, so that nothing can be "
                "committed and what it did was undone; leave it open, Redrive needs it to settle "
                "the delivery."
            )
        if room.line.is_closed():
            raise StoreUnavailableError(
                f"The connection to {self.address.name} was lost while a handler used it; what it "
                "did was undone."
            )

    async def _finish(
        self, room: _Room, link: Link, leased: Leased, entered: Entered
    ) -> tuple[Ending, bool]:
        """Settle and commit, or find that the lease is no longer current."""
        settle = effects.settle_effect if entered.is_new else effects.settle_repeat
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await effects.still_open(link, entered)
                now = await self._now(link)
                refused, frees = await settle(link, leased, now=now, history=self._history)
                if refused:
                    return Ending.REFUSED, False
                room.is_open = False
                await room.transaction.commit()
        except asyncpg.InFailedSQLTransactionError as error:
            raise TransactionError(
                "The handler went on after the database had refused a statement of it, so that "
                "nothing can be committed; put what may fail into "
                "`async with connection.transaction():`."
            ) from error
        except _NOT_THE_HANDLERS_FAULT:
            with translated(self.address):
                raise
        return Ending.APPLIED if entered.is_new else Ending.REPEATED, frees

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[_Room]:
        """Lend a connection in a new transaction; what is not committed by then is undone."""
        begun: list[Any] = []

        async def begin(line: Connection) -> None:
            transaction = line.transaction(isolation="read_committed")
            await transaction.start()
            begun.append(transaction)

        pool = self._opened()
        with translated(self.address):
            line = await self._taken(begin)
        try:
            with stand_in(line) as connection:
                room = _Room(line, connection, begun[-1])
                try:
                    yield room
                finally:
                    await self._clean(room)
        finally:
            pool.release(line)

    async def _clean(self, room: _Room) -> None:
        """Undo what is left, and what a handler may have set; else throw the connection away."""
        try:
            async with asyncio.timeout(_CLEANING_SECONDS):
                if room.is_open:
                    await room.transaction.rollback()
                if not self._is_proxied:
                    await room.connection.reset()
        except BaseException as error:
            drop(room.connection)
            if not isinstance(error, (asyncpg.PostgresError, *LOST)):
                raise
