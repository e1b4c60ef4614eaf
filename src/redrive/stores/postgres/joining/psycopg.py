"""Joining the transaction of a psycopg connection, sync or async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.stores.postgres.joining.caller import Caller, needs_event_loop, not_in_transaction

__all__ = ["adopt"]


def adopt(within: object) -> Caller | None:
    """Return a psycopg connection, if this is one."""
    match within:
        case Connection():
            _refuse_autocommit(within, "with connection.transaction():")
            return _Connection(within)
        case AsyncConnection():
            needs_event_loop(within)
            _refuse_autocommit(within, "async with connection.transaction():")
            return _AsyncConnection(within)
        case _:
            return None


def _refuse_autocommit(connection: Connection[Any] | AsyncConnection[Any], block: str) -> None:
    """Without autocommit the driver begins a transaction by itself."""
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise not_in_transaction(connection, f"publish inside `{block}`")


class _Connection:
    def __init__(self, connection: Connection[Any]) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        with RawCursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement, values or None)
            return [] if cursor.description is None else cursor.fetchall()

    def after_commit(self, then: Callable[[], None]) -> None:
        """Do nothing: this driver does not tell."""


class _AsyncConnection:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        async with AsyncRawCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement, values or None)
            return [] if cursor.description is None else await cursor.fetchall()

    def after_commit(self, then: Callable[[], None]) -> None:
        """Do nothing: this driver does not tell."""
