"""Sessions that live as long as one call of a function, and cannot commit."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, NullPool, PoolProxiedConnection, event, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import SessionTransaction

from redrive.errors import TransactionError, UsageError

__all__ = ["Borrowed", "borrow"]

_ENDED = (
    "The function has ended or undone the transaction of its session, or went on after the "
    "database had refused something, so that nothing can be committed together with its "
    "checkpoint; leave commit and rollback to Redrive, and put what may fail into "
    "`async with model.session.begin_nested():`."
)
_OVER = (
    "The session was for one call of the function, and that has ended; ask the ReadModel for one "
    "each time, and load what is needed later before."
)


class Borrowed:
    """A session, and what becomes of it when the function returns."""

    def __init__(self, engine: AsyncEngine, adapted: Any) -> None:  # noqa: ANN401 - as drivers are
        self._proxied = _Proxied(adapted)
        plain = Connection(engine.sync_engine, connection=self._proxied)
        self._transaction = plain.begin()
        self.session = AsyncSession(AsyncConnection(engine, plain), expire_on_commit=False)
        self._is_undone = False
        event.listen(self.session.sync_session, "after_soft_rollback", self._undone)

    async def finish(self) -> None:
        """Write what is left to write; raises what the database says against it."""
        if self._is_undone or not self._transaction.is_active:
            raise TransactionError(_ENDED)
        await self.session.flush()

    def _undone(self, _session: object, transaction: SessionTransaction) -> None:
        """Take note that everything was undone; to undo a savepoint is nothing to Redrive."""
        self._is_undone = self._is_undone or not transaction.nested

    def leave(self) -> None:
        """Let nobody use it from here on."""
        self._proxied.leave()


def borrow(connection: Any) -> Borrowed:  # noqa: ANN401 - that of either driver
    """Return a session on a connection with an open transaction, of either database."""
    driver: ModuleType
    if hasattr(connection, "fetchrow"):
        from redrive.transports.sessions import asyncpg as driver  # noqa: PLC0415 - may be missing
    else:
        from redrive.transports.sessions import apsw as driver  # noqa: PLC0415 - one of two
    adapted = driver.adapted(connection)
    return Borrowed(_engine(driver, driver.version(connection)), adapted)


@cache
def _engine(driver: ModuleType, version: tuple[int, ...]) -> AsyncEngine:
    """Return what compiles statements for a release of a database; it never connects to one."""
    dialect = driver.Dialect(version)
    engine = Engine(NullPool(_refuse, dialect=dialect), dialect, make_url(f"{dialect.name}://"))
    with Connection(engine, connection=_Proxied(None)) as connection:
        dialect.initialize(connection)
    return AsyncEngine(engine)


def _refuse() -> NoReturn:
    raise UsageError(
        "A session of a projection has one connection, that of the transaction, and opens no other."
    )


class _Proxied(PoolProxiedConnection):
    """A connection as it comes from a pool, but for the pool."""

    def __init__(self, adapted: Any) -> None:  # noqa: ANN401 - as drivers are
        self.dbapi_connection = adapted
        self.driver_connection = adapted and adapted.driver_connection
        self._info: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self.dbapi_connection, name)

    def leave(self) -> None:
        self.dbapi_connection = None

    @property
    def info(self) -> dict[Any, Any]:
        return self._info

    @property
    def record_info(self) -> dict[Any, Any] | None:
        return self._info

    @property
    def is_valid(self) -> bool:
        return self.dbapi_connection is not None

    @property
    def is_detached(self) -> bool:
        return False

    def detach(self) -> None:
        _refuse()

    def invalidate(self, e: BaseException | None = None, soft: bool = False) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy calls it
        """Leave it to its owner what becomes of a connection that was lost."""

    def cursor(self, *options: Any, **more: Any) -> Any:  # noqa: ANN401 - as above
        if self.dbapi_connection is None:
            raise UsageError(_OVER)
        return self.dbapi_connection.cursor(*options, **more)

    def commit(self) -> None:
        """Leave it to Redrive."""

    def rollback(self) -> None:
        """Leave it to Redrive."""

    def close(self) -> None:
        """Leave it to Redrive."""
