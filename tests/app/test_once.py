"""Read models in another database: each event comes at least once, and counts once."""

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redrive import ConfigurationError, Event, Once, ReadModel, Redrive, UsageError
from redrive.testing import Kit
from tests.servers.postgres import Database

NAME = f"once_{os.getpid()}"
Elsewhere = Callable[[], AbstractAsyncContextManager[Any]]
"""Opens a transaction in the other database."""

DRIVERS = ["sqlite3", "asyncpg", "psycopg", "psycopg-async", "cursor", "sqlalchemy", "session"]


@pytest.fixture(params=DRIVERS)
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Elsewhere:
    """Another database, by each driver."""
    if request.param == "sqlite3":
        return lambda: _in_file(tmp_path / "other.db")
    if request.param == "session":
        return lambda: _by_session(tmp_path / "other.db")
    database: Database = request.getfixturevalue("database")
    return lambda: _in_server(request.param, database.url.partition("?")[0])


@asynccontextmanager
async def _in_file(path: Path) -> AsyncIterator[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@asynccontextmanager
async def _by_session(path: Path) -> AsyncIterator[Any]:
    engine = create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def _in_server(driver: str, url: str) -> AsyncIterator[Any]:
    if driver == "asyncpg":
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()
    elif driver == "psycopg-async":
        async with await psycopg.AsyncConnection.connect(url) as plain:
            yield plain
    elif driver == "sqlalchemy":
        engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
        try:
            async with AsyncSession(engine) as session, session.begin():
                yield session
        finally:
            await engine.dispose()
    else:
        with psycopg.connect(url) as blocking:
            yield blocking.cursor() if driver == "cursor" else blocking


class Totals:
    """A projection that counts orders in another database, as often as it is told to."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self.elsewhere = elsewhere
        self.once = Once("totals", table=NAME)
        self.app = Redrive("memory://")
        self.kit: Kit
        self.calls = 0
        self.fails_once = False
        self.app.projection("order.placed", name="totals", truncate=self.truncate)(self.add)

    async def add(self, event: Event[None], _model: ReadModel) -> None:
        self.calls += 1
        async with self.elsewhere() as other:
            if await self.once.is_new(event, within=other):
                assert not await self.once.is_new(event, within=other)
                await run(other, f"UPDATE {self.table} SET orders = orders + 1")  # noqa: S608 - a test
            if self.fails_once:
                self.fails_once = False
                raise RuntimeError("it is busy")

    async def truncate(self, _model: ReadModel) -> None:
        """Leave it as it is, as somebody would whose read model has lost nothing."""

    @property
    def table(self) -> str:
        return f"{NAME}_model"

    async def count(self) -> int:
        async with self.elsewhere() as other:
            done = await run(other, f"SELECT orders FROM {self.table}")  # noqa: S608 - a test
            [row] = done if isinstance(done, list) else await _all(done)
            return int(row[0])


async def run(other: Any, statement: str) -> Any:  # noqa: ANN401 - of any driver
    if isinstance(other, Session | AsyncSession):
        done = other.execute(text(statement))
    elif isinstance(other, asyncpg.Connection):
        return list(await other.fetch(statement))
    else:
        done = other.execute(statement)
    return await done if hasattr(done, "__await__") else done


async def _all(done: Any) -> list[Any]:  # noqa: ANN401 - of any driver
    rows = done.fetchall()
    return list(await rows if hasattr(rows, "__await__") else rows)


@pytest.fixture
async def totals(elsewhere: Elsewhere) -> AsyncIterator[Totals]:
    totals = Totals(elsewhere)
    async with elsewhere() as other:
        await totals.once.create(within=other)
        await totals.once.create(within=other)
        await run(other, f"CREATE TABLE {totals.table} (orders INTEGER)")
        await run(other, f"INSERT INTO {totals.table} VALUES (0)")  # noqa: S608 - a test
    async with Kit(totals.app) as kit:
        totals.kit = kit
        yield totals
    async with elsewhere() as other:
        await run(other, f"DROP TABLE {totals.table}")
        await run(other, f"DROP TABLE {NAME}")


async def test_an_event_that_comes_again_changes_nothing(totals: Totals) -> None:
    for _ in range(3):
        await totals.app.publish("order.placed")
    await totals.app.drain()
    await totals.app.projections.reset("totals", by="ada")
    await totals.app.drain()

    assert totals.calls == 6, "it came twice"
    assert await totals.count() == 3


async def test_what_was_undone_is_new_again(totals: Totals) -> None:
    totals.fails_once = True
    await totals.app.publish("order.placed")
    await totals.app.drain()
    assert await totals.count() == 0

    await totals.kit.drain(until="10s")
    assert totals.calls == 2
    assert await totals.count() == 1


async def test_what_is_forgotten_is_new_again(totals: Totals) -> None:
    await totals.app.publish("order.placed")
    await totals.app.drain()
    now = totals.kit.clock.now()

    for before, expected in [(now, 1), (now + timedelta(seconds=1), 2), (None, 3)]:
        async with totals.elsewhere() as other:
            await Once("others", table=NAME).forget(within=other)
            await totals.once.forget(within=other, before=before)
        await totals.app.projections.reset("totals", by="ada")
        await totals.app.drain()
        assert await totals.count() == expected


def test_what_cannot_be_a_record_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="what the read model is called"):
        Once(" ")
    with pytest.raises(ConfigurationError, match="small letters"):
        Once("totals", table="a; DROP")


async def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(UsageError, match="got str; pass the connection or session"):
        await Once("totals").create(within="shop.db")
