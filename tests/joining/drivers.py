"""One shop, run by each of the drivers that `within=` takes."""

from __future__ import annotations

import asyncio
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connection as django_connection
from django.db import connections
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from redrive import NewEvent, Receipt, Redrive

T = TypeVar("T")
P = ParamSpec("P")
_numbers = itertools.count(1)


class Till:
    """A transaction of a shop's: runs its statements, and publishes within it."""

    def __init__(self, app: Redrive, within: Any, execute: Callable[[str], Any]) -> None:  # noqa: ANN401 - any driver's
        self.app = app
        self.within = within
        self._execute = execute

    async def execute(self, statement: str) -> None:
        await self._execute(statement)

    async def publish(self, event_type: str, payload: object = None, **attributes: Any) -> Receipt:  # noqa: ANN401 - whatever publish takes
        return await self.app.publish(event_type, payload, within=self.within, **attributes)

    async def publish_many(self, events: Sequence[NewEvent]) -> Sequence[Receipt]:
        return await self.app.publish_many(events, within=self.within)


class ThreadTill(Till):
    """The same from a thread without an event loop, always the same one."""

    def __init__(
        self,
        app: Redrive,
        within: Any,  # noqa: ANN401 - any driver's
        execute: Callable[[str], Any],
        thread: ThreadPoolExecutor,
    ) -> None:
        super().__init__(app, within, execute)
        self._thread = thread

    async def execute(self, statement: str) -> None:
        await in_thread(self._thread, self._execute, statement)

    async def publish(self, event_type: str, payload: object = None, **attributes: Any) -> Receipt:  # noqa: ANN401 - whatever publish takes
        def publish() -> Receipt:
            return self.app.sync.publish(event_type, payload, within=self.within, **attributes)

        return await in_thread(self._thread, publish)

    async def publish_many(self, events: Sequence[NewEvent]) -> Sequence[Receipt]:
        def publish() -> Sequence[Receipt]:
            return self.app.sync.publish_many(events, within=self.within)

        return await in_thread(self._thread, publish)


def in_thread(
    thread: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(thread, lambda: function(*args, **kwargs))


class Shop(ABC):
    """A table of orders in a schema of its own, beside the store's."""

    def __init__(self, app: Redrive, url: str) -> None:
        self.app = app
        self.url = url.partition("?")[0]
        self.name = f"shop_{os.getpid()}_{next(_numbers)}"

    def url_of(self, dialect: str) -> str:
        return self.url.replace("postgresql://", f"postgresql+{dialect}://")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        await self.ask(f"CREATE SCHEMA {self.name}")
        await self.ask(f"CREATE TABLE {self.name}.orders (id integer PRIMARY KEY)")
        try:
            yield self
        finally:
            await self.ask(f"DROP SCHEMA {self.name} CASCADE")

    async def ask(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    def insert(self, number: int) -> str:
        return f"INSERT INTO {self.name}.orders VALUES ({number})"

    async def orders(self) -> list[int]:
        rows = await self.ask(f"SELECT id FROM {self.name}.orders ORDER BY id")
        return [row[0] for row in rows]

    async def events(self) -> int:
        return (await self.app.operations.status()).events

    @abstractmethod
    def transaction(self, isolation: str = "READ COMMITTED") -> AbstractAsyncContextManager[Till]:
        """Open a transaction; it commits at the end of the block, an error rolls it back."""

    @abstractmethod
    def autocommit(self) -> AbstractAsyncContextManager[Till]:
        """Open a connection that is not in a transaction."""


class Asyncpg(Shop):
    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        connection = await asyncpg.connect(self.url)
        level = isolation.lower().replace(" ", "_")
        try:
            async with connection.transaction(isolation=level):
                yield Till(self.app, connection, connection.execute)
        finally:
            await connection.close()

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        connection = await asyncpg.connect(self.url)
        try:
            yield Till(self.app, connection, connection.execute)
        finally:
            await connection.close()


class AsyncpgPool(Shop):
    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        level = isolation.lower().replace(" ", "_")
        async with (
            asyncpg.create_pool(self.url, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(isolation=level),
        ):
            yield Till(self.app, connection, connection.execute)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with (
            asyncpg.create_pool(self.url, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            yield Till(self.app, connection, connection.execute)


class PsycopgAsync(Shop):
    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            await connection.set_isolation_level(_level(isolation))
            yield Till(self.app, connection, connection.execute)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield Till(self.app, connection, connection.execute)


def _level(isolation: str) -> psycopg.IsolationLevel:
    return psycopg.IsolationLevel[isolation.replace(" ", "_")]


class ThreadShop(Shop):
    """A shop that lives in one thread, as a request of a web application does."""

    def __init__(self, app: Redrive, url: str) -> None:
        super().__init__(app, url)
        self.thread = ThreadPoolExecutor(1)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        with self.thread:
            async with super().opened():
                yield self

    def till(self, within: Any, execute: Callable[[str], Any]) -> Till:  # noqa: ANN401 - any driver's
        return ThreadTill(self.app, within, execute, self.thread)

    @asynccontextmanager
    async def inside(self, block: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - any context manager
        """Enter and leave a plain `with` block in the shop's thread."""
        value = await in_thread(self.thread, block.__enter__)
        try:
            yield value
        except BaseException as error:
            await in_thread(self.thread, block.__exit__, type(error), error, error.__traceback__)
            raise
        await in_thread(self.thread, block.__exit__, None, None, None)


class Psycopg(ThreadShop):
    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        connection = await in_thread(self.thread, lambda: psycopg.connect(self.url))
        connection.isolation_level = _level(isolation)
        async with self.inside(connection):
            yield self.till(connection, connection.execute)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        connection = await in_thread(
            self.thread, lambda: psycopg.connect(self.url, autocommit=True)
        )
        async with self.inside(connection):
            yield self.till(connection, connection.execute)


class SqlalchemyConnection(ThreadShop):
    dialect = "psycopg"

    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        engine = sqlalchemy.create_engine(self.url_of(self.dialect), isolation_level=isolation)
        try:
            async with self.inside(engine.begin()) as connection:
                yield self.till(connection, connection.exec_driver_sql)
        finally:
            engine.dispose()

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with self.transaction("AUTOCOMMIT") as till:
            yield till


class SqlalchemyPsycopg2(SqlalchemyConnection):
    dialect = "psycopg2"


class SqlalchemySession(ThreadShop):
    def make_session(self, engine: sqlalchemy.Engine) -> Any:  # noqa: ANN401 - or what stands for one
        return Session(engine)

    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        engine = sqlalchemy.create_engine(self.url_of("psycopg"), isolation_level=isolation)
        session = self.make_session(engine)
        try:
            async with self.inside(session.begin()):
                yield self.till(
                    session, lambda statement: session.execute(sqlalchemy.text(statement))
                )
        finally:
            session.close()
            engine.dispose()

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with self.transaction("AUTOCOMMIT") as till:
            yield till


class SqlalchemyScopedSession(SqlalchemySession):
    def make_session(self, engine: sqlalchemy.Engine) -> Any:  # noqa: ANN401 - a stand-in for one
        return scoped_session(sessionmaker(engine), scopefunc=lambda: 1)


class SqlalchemyAsyncConnection(Shop):
    dialect = "asyncpg"

    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        engine = create_async_engine(self.url_of(self.dialect), isolation_level=isolation)
        try:
            async with engine.begin() as connection:
                yield Till(self.app, connection, connection.exec_driver_sql)
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with self.transaction("AUTOCOMMIT") as till:
            yield till


class SqlalchemyAsyncPsycopg(SqlalchemyAsyncConnection):
    dialect = "psycopg"


class SqlalchemyAsyncSession(Shop):
    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        engine = create_async_engine(self.url_of("asyncpg"), isolation_level=isolation)
        session = AsyncSession(engine)
        try:
            async with session, session.begin():
                yield Till(
                    self.app,
                    session,
                    lambda statement: session.execute(sqlalchemy.text(statement)),
                )
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with self.transaction("AUTOCOMMIT") as till:
            yield till


class Django(ThreadShop):
    def __init__(self, app: Redrive, url: str) -> None:
        super().__init__(app, url)
        django_database(self.url)

    def _execute(self, statement: str) -> None:
        with django_connection.cursor() as cursor:
            cursor.execute(statement)

    @asynccontextmanager
    async def transaction(self, isolation: str = "READ COMMITTED") -> AsyncIterator[Till]:
        async with self._connected(), self.inside(django_transaction.atomic()):
            if isolation != "READ COMMITTED":
                await in_thread(
                    self.thread, self._execute, f"SET TRANSACTION ISOLATION LEVEL {isolation}"
                )
            yield self.till(django_connection, self._execute)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Till]:
        async with self._connected():
            yield self.till(django_connection, self._execute)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await in_thread(self.thread, _disconnect)


def _disconnect() -> None:
    django_connection.close()  # of the thread that calls


def django_database(url: str) -> None:
    """Let Django's default database be the one at a URL."""
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    if not settings.configured:
        settings.configure()
        django.setup()
    if settings.DATABASES.get("default", {}).get("NAME") != database["NAME"]:
        settings.DATABASES, settings.USE_TZ = {"default": database}, False
        vars(connections).pop("settings", None)  # what others in this process have asked for


ALL: list[type[Shop]] = [
    Asyncpg,
    AsyncpgPool,
    Psycopg,
    PsycopgAsync,
    SqlalchemyConnection,
    SqlalchemyPsycopg2,
    SqlalchemySession,
    SqlalchemyScopedSession,
    SqlalchemyAsyncConnection,
    SqlalchemyAsyncPsycopg,
    SqlalchemyAsyncSession,
    Django,
]
