"""Joining the transaction of a SQLAlchemy connection or session, sync or async.

Statements go through SQLAlchemy's own connection: it begins transactions when it is first used,
and what went past it to the driver would be committed on the spot.

Its events tell of a commit before it happens; those of a session tell of the release of a
savepoint as well. So the dialect, which does the commit, is made to tell.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, CursorResult, Dialect, PoolProxiedConnection

from redrive.errors import TransactionError
from redrive.stores.postgres.joining.caller import Caller, needs_event_loop, pyformat

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["Commits", "adopt", "beneath"]

_DRIVERS = ("asyncpg", "psycopg", "psycopg_async", "psycopg2")


async def adopt(within: object) -> Caller | None:
    """Return the connection beneath, if this is one of SQLAlchemy's to PostgreSQL."""
    connection = await beneath(within)
    if connection is None:
        return None
    _check_dialect(connection.dialect)
    if isinstance(connection, Connection):
        return _Connection(connection)
    return _AsyncConnection(connection)


async def beneath(within: object) -> Connection | AsyncConnection | None:
    """Return the connection beneath, if this is one of SQLAlchemy's, whatever it leads to."""
    is_session_known = "sqlalchemy.orm" in sys.modules
    if is_session_known:
        from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415 - it is loaded already

        if isinstance(within, scoped_session):
            within = within()
        if isinstance(within, Session):
            within = within.connection()
    if isinstance(within, Connection):
        return within
    if "sqlalchemy.ext.asyncio" in sys.modules:
        return await _beneath_async(within)
    return None


async def _beneath_async(within: object) -> AsyncConnection | None:
    from sqlalchemy.ext.asyncio import (  # noqa: PLC0415 - it is loaded already
        AsyncConnection,
        AsyncSession,
        async_scoped_session,
    )

    if not isinstance(within, AsyncConnection | AsyncSession | async_scoped_session):
        return None
    needs_event_loop(within)
    return within if isinstance(within, AsyncConnection) else await within.connection()


def _check_dialect(dialect: Dialect) -> None:
    if dialect.name != "postgresql":
        raise TransactionError(
            f"within= got a connection of SQLAlchemy to {dialect.name}, but this app keeps its "
            "events in PostgreSQL; pass one to the same database."
        )
    if dialect.driver not in _DRIVERS:
        raise TransactionError(
            f"within= got a connection of SQLAlchemy by way of {dialect.driver}, which Redrive "
            "does not know; use asyncpg, psycopg or psycopg2."
        )


class _Connection:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> object:
        return self._connection.connection.driver_connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        return _rows(
            self._connection.exec_driver_sql(*_driver_sql(self._connection, statement, values))
        )

    def after_commit(self, then: Callable[[], None]) -> None:
        Commits(self._connection).after_commit(then)


class _AsyncConnection:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @property
    def connection(self) -> object:
        beneath = self._connection.sync_connection
        return None if beneath is None else beneath.connection.driver_connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        return _rows(
            await self._connection.exec_driver_sql(
                *_driver_sql(self._connection, statement, values)
            )
        )

    def after_commit(self, then: Callable[[], None]) -> None:
        Commits(self._connection).after_commit(then)


def _driver_sql(
    connection: Connection | AsyncConnection, statement: str, values: tuple[object, ...]
) -> tuple[Any, ...]:
    if not values:
        return (statement,)
    if connection.dialect.paramstyle == "pyformat":
        return pyformat(statement), {f"p{n}": value for n, value in enumerate(values, start=1)}
    return statement, values


def _rows(result: CursorResult[Any]) -> list[Any]:
    return list(result.all()) if result.returns_rows else []


_TO_CALL = "redrive_after_commit"
_telling: weakref.WeakSet[Dialect] = weakref.WeakSet()
_lock = threading.Lock()


class Commits:
    """Who waits for the commit of a connection; the same one only once."""

    def __init__(self, connection: Connection | AsyncConnection) -> None:
        self._connection = connection
        with _lock:
            if connection.dialect not in _telling:
                _let_tell(connection.dialect)
                _telling.add(connection.dialect)

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it after the commit."""
        self._info.setdefault(_TO_CALL, {})[then] = None

    def waiting(self) -> list[Callable[[], None]]:
        """Return who waits, in order."""
        return list(self._info.get(_TO_CALL, ()))

    def begun(self) -> Self:
        """Begin a transaction where none is, as a statement would."""
        if (plain := self._plain) is not None and not plain.in_transaction():
            plain.begin()
        return self

    @property
    def _plain(self) -> Connection | None:
        connection = self._connection
        return connection if isinstance(connection, Connection) else connection.sync_connection

    @property
    def _info(self) -> dict[Any, Any]:
        return {} if (plain := self._plain) is None else plain.info


def _let_tell(dialect: Dialect) -> None:
    """Have a dialect, which each engine has its own of, call what waits for a commit after it."""
    commit, roll_back = dialect.do_commit, dialect.do_rollback

    def do_commit(connection: PoolProxiedConnection) -> None:
        waiting: dict[Callable[[], None], None] = connection.info.pop(_TO_CALL, {})
        commit(connection)
        for then in waiting:
            then()

    def do_rollback(connection: PoolProxiedConnection) -> None:
        connection.info.pop(_TO_CALL, None)
        roll_back(connection)

    vars(dialect).update(do_commit=do_commit, do_rollback=do_rollback)
