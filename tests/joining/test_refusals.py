"""What `within=` cannot join is refused with one sentence that says what to write instead."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db.backends.sqlite3.base import DatabaseWrapper
from sqlalchemy.ext.asyncio import create_async_engine

from redrive import Redrive, TransactionError
from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.joining.identity import Acquaintances, Identity
from redrive.stores.postgres.pool import Link
from redrive.stores.sealed import PLAIN
from redrive.testing import ScriptedDestination
from tests.servers.waiting import until_somebody_waits


def server_of(url: str) -> str:
    return url.partition("?")[0]


@asynccontextmanager
async def transaction(url: str, **options: Any) -> AsyncIterator[asyncpg.Connection[Any]]:  # noqa: ANN401 - the driver's
    connection = await asyncpg.connect(server_of(url))
    try:
        async with connection.transaction(**options):
            yield connection
    finally:
        await connection.close()


async def events(app: Redrive) -> int:
    return (await app.operations.status()).events


async def test_what_is_no_connection_is_refused_by_its_name(
    app: Redrive, postgres_url: str
) -> None:
    server = server_of(postgres_url)
    engine = sqlalchemy.create_engine(server.replace("postgresql:", "postgresql+psycopg:"))
    pool = asyncpg.create_pool(server, min_size=0)
    with closing(psycopg.connect(server)) as connection:
        for wrong in ("the transaction", pool, engine, connection.cursor()):
            with pytest.raises(
                TransactionError,
                match=f"within= got {type(wrong).__name__}; on PostgreSQL pass an asyncpg or",
            ):
                await app.publish("order.paid", within=wrong)

    assert await events(app) == 0


async def test_databases_of_another_kind_are_refused(app: Redrive) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    django = DatabaseWrapper({"NAME": ":memory:", "OPTIONS": {}}, alias="reports")
    with closing(sqlite3.connect(":memory:")) as plain, engine.connect() as connection:
        for wrong, message in (
            (plain, "within= got a connection of sqlite3, but this app keeps its events in Postg"),
            (connection, "within= got a connection of SQLAlchemy to sqlite"),
            (django, "within= got Django's database 'reports', which is SQLite"),
        ):
            with pytest.raises(TransactionError, match=message):
                await app.publish("order.paid", within=wrong)
    engine.dispose()

    assert await events(app) == 0


async def test_a_driver_that_nobody_has_tried_is_refused(app: Redrive, postgres_url: str) -> None:
    server = server_of(postgres_url)
    engine = sqlalchemy.create_engine(server.replace("postgresql:", "postgresql+psycopg:"))
    engine.dialect.driver = "pg8000"

    with (
        engine.connect() as connection,
        pytest.raises(TransactionError, match="by way of pg8000, which Redrive does not know"),
    ):
        await app.publish("order.paid", within=connection)
    engine.dispose()


async def test_a_connection_to_another_database_is_refused(app: Redrive, postgres_url: str) -> None:
    """Even where the schema exists there too, nobody would look for the event."""
    server, name = server_of(postgres_url), read_address(postgres_url).schema
    other = f"{server.rpartition('/')[0]}/{name}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    try:
        async with Redrive(f"{other}?schema={name}"), transaction(other) as theirs:
            with pytest.raises(TransactionError, match=r"to the database \w+, but this app"):
                await app.publish("order.paid", within=theirs)
            assert await theirs.fetchval("SELECT 1") == 1
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


class FarAway:
    """A connection to a database of the same name on another server."""

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        return [("shop", "2")]


async def test_a_connection_to_another_server_is_refused() -> None:
    address = read_address("postgresql://localhost/shop")
    acquaintances = Acquaintances(address, Identity("shop", "1"))

    with pytest.raises(TransactionError, match="of the same name on another server"):
        await acquaintances.check(None, Link(FarAway(), address.schema, PLAIN))


async def test_where_the_server_is_not_told_the_name_of_the_database_counts(
    app: Redrive, postgres_url: str
) -> None:
    address = read_address(postgres_url)
    acquaintances = Acquaintances(address, Identity(server_of(postgres_url).rpartition("/")[2]))
    async with transaction(postgres_url) as connection:

        class Near(FarAway):
            async def fetch(self, statement: str, *values: object) -> list[Any]:
                return list(await connection.fetch(statement, *values))

        await acquaintances.check(None, Link(Near(), address.schema, PLAIN))


async def test_a_schema_that_is_gone_is_told(app: Redrive, postgres_url: str) -> None:
    schema = read_address(postgres_url).schema

    async with transaction(postgres_url) as connection:
        undone = connection.transaction()
        await undone.start()
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(TransactionError, match=f"without the schema {schema} of this app"):
            await app.publish("order.paid", within=connection)
        await undone.rollback()


async def test_a_user_who_may_not_write_is_told_what_to_grant(
    app: Redrive, postgres_url: str
) -> None:
    async with transaction(postgres_url) as connection:
        await connection.execute(
            "CREATE ROLE redrive_test_guest; SET LOCAL ROLE redrive_test_guest"
        )
        with pytest.raises(TransactionError, match=r"may not write to the schema \w+; grant it"):
            await app.publish("order.paid", within=connection)
        await connection.execute("RESET ROLE; DROP ROLE redrive_test_guest")


async def test_a_transaction_that_is_read_only_is_refused(app: Redrive, postgres_url: str) -> None:
    async with transaction(postgres_url, readonly=True) as connection:
        with pytest.raises(TransactionError, match="is read only; nothing was stored"):
            await app.publish("order.paid", within=connection)


async def test_the_synchronous_door_refuses_async_connections(
    app: Redrive, postgres_url: str
) -> None:
    """Used in another thread than that of its event loop, a connection breaks."""
    server = server_of(postgres_url)
    engine = create_async_engine(server.replace("postgresql:", "postgresql+asyncpg:"))
    async with (
        transaction(postgres_url) as first,
        await psycopg.AsyncConnection.connect(server) as second,
        engine.begin() as third,
    ):
        for connection in (first, second, third):
            with pytest.raises(TransactionError, match="works on its own event loop only"):
                await asyncio.to_thread(app.sync.publish, "order.paid", within=connection)
    await engine.dispose()

    assert await events(app) == 0


async def test_an_async_call_may_join_a_connection_that_is_not_async(
    app: Redrive, postgres_url: str
) -> None:
    with psycopg.connect(server_of(postgres_url)) as connection:
        await app.publish("order.paid", within=connection)

    assert await events(app) == 1


async def test_a_publish_that_is_cancelled_leaves_nothing_half_and_the_rest_goes_on(
    app: Redrive, postgres_url: str, billing: ScriptedDestination
) -> None:
    server = server_of(postgres_url)
    async with (
        transaction(postgres_url) as first,
        transaction(postgres_url) as second,
        await psycopg.AsyncConnection.connect(server) as third,
    ):
        await app.publish("order.held", key="order-1", within=first)
        for connection in (second, third):
            waiting = asyncio.ensure_future(
                app.publish("order.paid", key="order-1", idempotency_key="1", within=connection)
            )
            await until_somebody_waits(first)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await app.publish("order.sent", within=connection)

    await app.drain()
    assert sorted(one.type for one in billing.received) == ["order.held"] + ["order.sent"] * 2


async def test_a_connection_that_is_lost_on_the_way_says_that_the_transaction_is_over(
    app: Redrive, postgres_url: str
) -> None:
    async with transaction(postgres_url) as first:
        await app.publish("order.held", key="order-1", within=first)
        second = await asyncpg.connect(server_of(postgres_url))
        await second.execute("BEGIN")
        waiting = asyncio.ensure_future(app.publish("order.paid", key="order-1", within=second))
        await until_somebody_waits(first)
        await first.execute("SELECT pg_terminate_backend($1)", second.get_server_pid())
        with pytest.raises(asyncpg.PostgresError) as lost:
            await waiting

    assert "cannot go on; roll it back" in lost.value.__notes__[0]
    assert await events(app) == 1


async def test_no_notification_is_sent(app: Redrive, postgres_url: str) -> None:
    """It would take a lock of the whole database at the caller's commit."""
    heard: list[object] = []
    listener = await asyncpg.connect(server_of(postgres_url))
    schema = read_address(postgres_url).schema
    await listener.add_listener(f"{schema}_work", lambda *_: heard.append(1))

    async with transaction(postgres_url) as connection:
        await app.publish("order.paid", within=connection)
    await listener.execute("SELECT 1")

    assert heard == []
    assert await events(app) == 1
    await listener.close()


def test_no_driver_is_imported_that_the_caller_has_not_imported(postgres_url: str) -> None:
    program = f"""
import asyncio, sys
from redrive import Redrive, TransactionError

async def main():
    async with Redrive({postgres_url!r}) as app:
        try:
            await app.publish("order.paid", within=object())
        except TransactionError:
            return sorted({{"psycopg", "sqlalchemy", "django"}} & sys.modules.keys())

print(asyncio.run(main()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert ran.stdout == "[]\n", ran.stderr


async def test_a_transaction_of_the_app_is_refused_without_telling_the_password(
    postgres_url: str,
) -> None:
    address = postgres_url.replace("://redrive@", "://redrive:secret@")
    async with Redrive(address) as app:
        with pytest.raises(TransactionError, match="within=connection") as refused:
            async with app.transaction():
                pass

    assert "secret" not in str(refused.value)
