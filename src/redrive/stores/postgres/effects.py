"""Effects in SQL: the inbox, and what is committed together with an effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec

from redrive.errors import StoreUnavailableError, TransactionError
from redrive.model.delivery import Leased
from redrive.store import AppliedLane, Effect, Ending, Following
from redrive.stores.finishing import to_the_end
from redrive.stores.postgres.connection import LOST, Connection, translated
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.pool import CONNECT_SECONDS, drop, stand_in
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.effects import settle_effect, take_effect
from redrive.stores.sql.followers import take_followers

__all__ = ["EffectsRole", "begin_effect", "still_open"]

_SILENCE = timedelta(seconds=5)
_CLEANING_SECONDS = 2.0
_NOT_THE_HANDLERS_FAULT = (
    *LOST,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
)

_ENTER = """
SELECT pg_current_xact_id()::text, set_config('idle_in_transaction_session_timeout', $1, true)
"""
_STILL_OPEN = """
SELECT pg_current_xact_id_if_assigned()::text,
       set_config('idle_in_transaction_session_timeout', $1, true)
"""


class _Entered(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that an effect may run in; with `is_new`, it is still to be applied."""

    number: str
    is_new: bool


class _Room:
    """A connection in a transaction that is still to be ended."""

    __slots__ = ("connection", "driver", "is_open", "transaction")

    def __init__(self, driver: Connection, connection: Any, transaction: Any) -> None:  # noqa: ANN401
        self.driver = driver
        self.connection = connection
        # The driver's own, so that a handler's `connection.transaction()` is a savepoint in it.
        # Not of another isolation: a heartbeat changes the delivery that is settled in the end.
        self.transaction = transaction
        self.is_open = True


class EffectsRole(Core):
    """`Effects`: each on a connection of its own for as long as it runs."""

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
        async with self._effects, self._room() as room:
            session = PostgresSession(room.connection, self.address.schema, self.codec)
            with translated(self.address):
                session.now = await self._now(session)
                entered = await _enter(session, leased, at_most=at_most)
            if entered is None:
                return AppliedLane(Ending.REFUSED)
            if entered.is_new:
                is_done = await effect(room.connection)
                self._check_connection(room)
                if not is_done:
                    return AppliedLane(Ending.UNDONE)
            if follow is not None:
                with translated(self.address):
                    followers = await take_followers(
                        session, leased, follow, connection=room.connection
                    )
                self._check_connection(room)
            ending, frees = await to_the_end(
                self._finish(room, session, leased, entered, followers)
            )
        if frees:
            self._notifications.notify()
        return AppliedLane(ending, () if ending is Ending.REFUSED else tuple(followers))

    def _check_connection(self, room: _Room) -> None:
        """Raise if the handler has closed its connection, or it was lost."""
        if room.driver.was_closed:
            raise TransactionError(
                "The handler has closed the connection that it was handed, so that nothing can be "
                "committed and what it did was undone; leave it open, Redrive needs it to settle "
                "the delivery."
            )
        if room.driver.is_closed():
            raise StoreUnavailableError(
                f"The connection to {self.address.name} was lost while a handler used it; what it "
                "did was undone."
            )

    async def _finish(
        self,
        room: _Room,
        session: PostgresSession,
        leased: Leased,
        entered: _Entered,
        followers: Sequence[Leased],
    ) -> tuple[Ending, bool]:
        """Settle and commit, or find that the lease is no longer current."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await still_open(session, entered.number)
                session.now = session.present = await self._now(session)
                refused, frees = await settle_effect(
                    session,
                    leased,
                    is_new=entered.is_new,
                    history=self._history,
                    followers=followers,
                )
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
        """Acquire a connection in a new transaction; what is not committed by then is undone."""
        begun: list[Any] = []

        async def begin(driver: Connection) -> None:
            transaction = driver.transaction(isolation="read_committed")
            await transaction.start()
            begun.append(transaction)

        pool = self._opened()
        with translated(self.address):
            driver = await self._taken(begin)
        try:
            with stand_in(driver) as connection:
                room = _Room(driver, connection, begun[-1])
                try:
                    yield room
                finally:
                    await self._clean(room)
        finally:
            pool.release(driver)

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


async def _enter(
    session: PostgresSession, leased: Leased, *, at_most: timedelta
) -> _Entered | None:
    """Take the inbox record of a delivery whose lease is current; `None` if it is not."""
    number = await begin_effect(session, at_most=at_most)
    is_new = await take_effect(session, leased)
    return None if is_new is None else _Entered(number=number, is_new=is_new)


async def begin_effect(session: PostgresSession, *, at_most: timedelta) -> str:
    """Have the server end the transaction should it fall silent; returns its number."""
    number: str = (await session.fetch(_ENTER, _milliseconds(at_most + _SILENCE)))[0][0]
    return number


async def still_open(session: PostgresSession, number: str) -> None:
    """Make sure that the handler has left the transaction open."""
    if (await session.fetch(_STILL_OPEN, _milliseconds(_SILENCE)))[0][0] != number:
        raise TransactionError(
            "The handler has ended the transaction that it was handed, so its effect could not be "
            "committed together with the delivery; leave commit and rollback to Redrive, and use "
            "`async with connection.transaction():` for a part of it."
        )


def _milliseconds(span: timedelta) -> str:
    return str(int(span.total_seconds() * 1000))
