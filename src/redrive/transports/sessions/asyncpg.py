"""Connections of asyncpg as SQLAlchemy takes them, within a transaction of somebody else's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import types
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.dialects.postgresql.asyncpg import (
    AsyncAdapt_asyncpg_connection,
    PGDialect_asyncpg,
)

__all__ = ["Dialect", "adapted", "version"]

_API: Any = PGDialect_asyncpg.import_dbapi()  # type: ignore[no-untyped-call]


class _Adapted(AsyncAdapt_asyncpg_connection):
    """SQLAlchemy's own way to asyncpg, which would begin a savepoint here for each statement."""

    @property
    def driver_connection(self) -> Any:  # noqa: ANN401 - the driver has no types
        """The connection itself, by which a publish within the session knows the database."""
        return getattr(self._connection, "_con", self._connection)

    async def _start_transaction(self) -> None:
        pass


class Dialect(PGDialect_asyncpg):
    """PostgreSQL of one release, told of everything that it would ask the server for."""

    # The connection is of the store's pool, and has no codecs of SQLAlchemy's.
    supports_native_json_deserialization = False
    colspecs = {**PGDialect_asyncpg.colspecs, types.JSON: JSON, JSONB: JSONB}  # noqa: RUF012 - as there
    supports_statement_cache = True

    def __init__(self, version: tuple[int, ...]) -> None:
        super().__init__(dbapi=_API)  # type: ignore[no-untyped-call]
        self._version = version

    def _get_server_version_info(self, connection: object) -> tuple[int, ...]:
        return self._version

    def _get_default_schema_name(self, connection: object) -> str:
        return "public"

    def get_default_isolation_level(self, dbapi_conn: object) -> Any:  # noqa: ANN401 - one of a list
        return "READ COMMITTED"

    def _set_backslash_escapes(self, connection: object) -> None:
        self._backslash_escapes = False


@lru_cache(maxsize=8)
def adapted(connection: Any) -> Any:  # noqa: ANN401 - the driver has no types
    """Return a connection as SQLAlchemy takes it: one for all of a batch, to prepare once."""
    return _Adapted(_API, connection)  # type: ignore[no-untyped-call]


def version(connection: Any) -> tuple[int, ...]:  # noqa: ANN401 - as above
    """Return the release of the server."""
    return tuple(connection.get_server_version()[:2])
