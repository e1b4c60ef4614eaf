"""Joining the transaction of an asyncpg connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from redrive.stores.postgres.joining.caller import needs_event_loop, not_in_transaction

__all__ = ["adopt"]


def adopt(within: object) -> _Connection | None:
    """Return an asyncpg connection, from a pool or not, if this is one."""
    if not isinstance(within, asyncpg.Connection | PoolConnectionProxy):
        return None
    needs_event_loop(within)
    if not within.is_in_transaction():
        raise not_in_transaction(within, "publish inside `async with connection.transaction():`")
    return _Connection(within)


class _Connection:
    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - either of the two
        self._connection = connection

    @property
    def connection(self) -> object:
        if isinstance(self._connection, PoolConnectionProxy):
            return self._connection._con  # noqa: SLF001 - there is no other way to tell them apart
        return self._connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(statement, *values)
        return rows

    def after_commit(self, then: Callable[[], None]) -> None:
        """Do nothing: this driver does not tell."""
