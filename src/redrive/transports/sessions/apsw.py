"""Connections of apsw as SQLAlchemy takes them, within a transaction of somebody else's.

A handed connection is used on the event loop, where each statement is short. SQLAlchemy wants to
see that something was awaited all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import apsw
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import await_only

__all__ = ["Dialect", "adapted", "version"]


class Error(Exception):
    """What a database API calls any error; SQLAlchemy knows them all by their names."""


class DatabaseError(Error):
    """It comes from the database."""


class OperationalError(DatabaseError):
    """It is about how the database is."""


class IntegrityError(DatabaseError):
    """A constraint is violated."""


_VERSION = tuple(int(one) for one in apsw.sqlite_lib_version().split("."))
_API: Any = SimpleNamespace(
    paramstyle="qmark",
    sqlite_version_info=_VERSION,
    Error=Error,
    DatabaseError=DatabaseError,
    OperationalError=OperationalError,
    IntegrityError=IntegrityError,
    ProgrammingError=DatabaseError,
    Binary=bytes,
)


class Dialect(SQLiteDialect_pysqlite):
    """SQLite by way of apsw."""

    is_async = True
    supports_statement_cache = True

    def __init__(self, version: tuple[int, ...]) -> None:
        super().__init__(dbapi=_API)
        self._version = version

    def _get_server_version_info(self, connection: object) -> tuple[int, ...]:
        return self._version

    def get_default_isolation_level(self, dbapi_conn: object) -> Any:  # noqa: ANN401 - one of a list
        return "SERIALIZABLE"


class _Cursor:
    """A statement and its rows, all of them read at once."""

    arraysize = 1

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.exec_trace = self._look
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._writes = False
        self.description: Sequence[tuple[Any, ...]] | None = None
        self.rowcount = -1

    @property
    def lastrowid(self) -> int:
        return self._connection.last_insert_rowid()

    def execute(self, statement: str, values: Sequence[object] = ()) -> None:
        self._run(lambda: self._cursor.execute(statement, tuple(values)))

    def executemany(self, statement: str, many: Iterable[Sequence[object]]) -> None:
        self._run(lambda: self._cursor.executemany(statement, [tuple(one) for one in many]))

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        self._cursor.close()

    async def _async_soft_close(self) -> None:
        """Be ready for a result that is read without awaiting; all rows are here."""

    def _run(self, statement: Any) -> None:  # noqa: ANN401 - a call
        await_only(_nothing())
        before = self._connection.total_changes()
        with _translated():
            self._rows = iter(statement().fetchall())
        if self._writes:
            self.rowcount = self._connection.total_changes() - before

    def _look(self, cursor: apsw.Cursor, _statement: str, _values: object) -> bool:
        """Look at what a statement returns; afterwards that is gone if there are no rows."""
        self._writes = not cursor.is_readonly
        described = cursor.get_description()
        self.description = [(name, *[None] * 6) for name, _ in described] or None
        return True


class _Adapted:
    def __init__(self, connection: apsw.Connection) -> None:
        self.driver_connection = connection

    def cursor(self) -> _Cursor:
        return _Cursor(self.driver_connection)


def adapted(transaction: Any) -> _Adapted:  # noqa: ANN401 - what the store hands out
    """Return the connection of a transaction as SQLAlchemy takes it."""
    return _Adapted(transaction.connection)


def version(_transaction: object) -> tuple[int, ...]:
    """Return the release of SQLite."""
    return _VERSION


async def _nothing() -> None:
    pass


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.ConstraintError as error:
        raise IntegrityError(str(error)) from error
    except apsw.SQLError as error:
        raise OperationalError(str(error)) from error
    except apsw.Error as error:
        raise DatabaseError(str(error)) from error
