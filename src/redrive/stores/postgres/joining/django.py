"""Joining the transaction of a Django connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from redrive.errors import TransactionError
from redrive.stores.postgres.joining.caller import not_in_transaction, pyformat

__all__ = ["adopt"]


def adopt(within: object) -> _Connection | None:
    """Return the connection of one of Django's databases, if this is one."""
    if isinstance(within, ConnectionProxy):
        within = connections[within.alias]
    if not isinstance(within, BaseDatabaseWrapper):
        return None
    if within.vendor != "postgresql":
        raise TransactionError(
            f"within= got Django's database {within.alias!r}, which is {within.display_name}, but "
            "this app keeps its events in PostgreSQL; pass one to the same database."
        )
    if not within.in_atomic_block and within.get_autocommit():
        raise not_in_transaction(within, "publish inside `with transaction.atomic():`")
    return _Connection(within)


class _Connection:
    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - Django has no types
        self._connection = connection

    @property
    def connection(self) -> object:
        self._connection.ensure_connection()
        return self._connection.connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        with self._connection.cursor() as cursor:
            if values:
                named = {f"p{n}": value for n, value in enumerate(values, start=1)}
                cursor.execute(pyformat(statement), named)
            else:
                cursor.execute(statement)
            return [] if cursor.description is None else cursor.fetchall()

    def after_commit(self, then: Callable[[], None]) -> None:
        if self._connection.in_atomic_block:  # Django tells of no others
            self._connection.on_commit(then)
