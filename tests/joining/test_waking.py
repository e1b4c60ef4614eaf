"""After the commit of a transaction that was published within, workers hear of it at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from redrive import Redrive
from redrive.stores.postgres.connection import read_address
from redrive.testing import ScriptedDestination
from tests.joining.drivers import Asyncpg, AsyncpgPool, Psycopg, PsycopgAsync, Shop
from tests.waiting import eventually

SILENT = (Asyncpg, AsyncpgPool, Psycopg, PsycopgAsync)
"""Drivers that do not tell of a commit."""


@asynccontextmanager
async def heard(url: str) -> AsyncIterator[list[str]]:
    """Listen as a worker does; yields what was heard."""
    address, said = read_address(url), list[str]()
    listener = await asyncpg.connect(address.dsn)
    try:
        await listener.add_listener(f"{address.schema}_work", lambda *_: said.append("work"))
        yield said
    finally:
        await listener.close()


async def is_heard_by_a_worker(url: str) -> bool:
    """Tell whether a worker listens: until it does, what it does not hear waits for its poll."""
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        listens = (
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' || $1 || '_work%'"
        )
        return bool(await connection.fetchval(listens, address.schema))
    finally:
        await connection.close()


async def test_a_worker_that_never_looks_by_itself_delivers_at_once(
    shop: Shop, postgres_url: str
) -> None:
    away, billing = Redrive(postgres_url, poll="1h"), ScriptedDestination("billing")
    away.handler("order.*")(billing)
    async with away, away.worker():
        await eventually(lambda: is_heard_by_a_worker(postgres_url), what="listening")

        async with shop.transaction() as till:
            await till.publish("order.paid", {"order": 42})
        if isinstance(shop, SILENT):
            await shop.app.wake()

        await eventually(lambda: billing.received, what="delivered")


async def test_a_rollback_wakes_nobody(shop: Shop, postgres_url: str) -> None:
    async def pay() -> None:
        async with shop.transaction() as till:
            await till.publish("order.paid")
            raise LookupError

    async with heard(postgres_url) as said:
        with pytest.raises(LookupError):
            await pay()
        await close(shop.app)  # it sends what is unsent
        assert said == []


async def close(app: Redrive) -> None:
    await asyncio.to_thread(app.sync.close)
    await app.close()


async def test_the_end_of_a_savepoint_or_of_an_inner_session_wakes_nobody(
    app: Redrive, postgres_url: str
) -> None:
    engine = sqlalchemy.create_engine(
        postgres_url.partition("?")[0].replace("postgresql://", "postgresql+psycopg://")
    )

    def pay() -> None:
        with engine.connect() as connection, connection.begin():
            with Session(connection) as session, session.begin(), session.begin_nested():
                app.sync.publish("order.paid", within=session)
            app.sync.close()  # it sends what is unsent

    async with heard(postgres_url) as said:
        await asyncio.to_thread(pay)
        engine.dispose()
        assert said == []


async def test_the_last_publish_is_heard_of_however_soon_the_store_is_closed(
    postgres_url: str,
) -> None:
    app = Redrive(postgres_url)
    async with heard(postgres_url) as said:
        async with app:
            await app.publish("order.paid")

        await eventually(lambda: said, what="heard")


async def test_a_process_that_ends_without_closing_anything_is_heard_of(postgres_url: str) -> None:
    program = "import sys, redrive; redrive.Redrive(sys.argv[1]).sync.publish('order.paid')"
    async with heard(postgres_url) as said:
        await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program, postgres_url], check=True
        )

        await eventually(lambda: said, what="heard")


async def test_many_stores_of_a_process_send_no_more_than_one_may(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        said = await stack.enter_async_context(heard(postgres_url))
        apps = [await stack.enter_async_context(Redrive(postgres_url)) for _ in range(5)]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(5):
            for app in apps:
                await app.publish("order.paid")
                await app.wake()

        await eventually(lambda: said, what="heard")
        most = (loop.time() - begun) / 0.02 + 2
        assert len(said) <= most
