"""Joining the transaction of a Django connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from redrive.errors import TransactionError
from redrive.stores.postgres.joining.caller import not_in_transaction, pyformat

__all__ = ["Commits", "adopt", "beneath", "in_transaction"]


def adopt(within: object) -> _Connection | None:
    """Return the connection of one of Django's databases, if this is one."""
    connection = beneath(within)
    if connection is None:
        return None
    if connection.vendor != "postgresql":
        raise TransactionError(
            f"within= got Django's database {connection.alias!r}, which is "
            f"{connection.display_name}, but this app keeps its events in PostgreSQL; pass one to "
            "the same database."
        )
    return _Connection(in_transaction(connection))


def beneath(within: object) -> Any:  # noqa: ANN401 - Django has no types
    """Return the connection of any of Django's databases, if this is one."""
    if isinstance(within, ConnectionProxy):
        within = connections[within.alias]
    return within if isinstance(within, BaseDatabaseWrapper) else None


def in_transaction(connection: Any) -> Any:  # noqa: ANN401 - Django has no types
    """Return the connection, if it is in a transaction; raises `TransactionError` otherwise."""
    if not connection.in_atomic_block and connection.get_autocommit():
        raise not_in_transaction(connection, "publish inside `with transaction.atomic():`")
    return connection


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
        Commits(self._connection).after_commit(then)


class Commits:
    """Who waits for the commit of a connection."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - Django has no types
        self._connection = connection

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it after the commit."""
        if self._connection.in_atomic_block:  # Django tells of no others
            self._connection.on_commit(then)

    def waiting(self) -> list[Callable[[], None]]:
        """Return who waits, in order."""
        return [one[1] for one in self._connection.run_on_commit]
