"""The test kit beside real drivers, and on a database of its own."""

from __future__ import annotations

import asyncpg
import pytest

from redrive import Redrive, TransactionError
from redrive.stores.postgres.connection import read_address
from redrive.testing import Kit, SyncKit
from tests.joining.drivers import ALL, Asyncpg, AsyncpgPool, Psycopg, PsycopgAsync, Shop

SILENT = (Asyncpg, AsyncpgPool, Psycopg, PsycopgAsync)
TELLING = [one for one in ALL if one not in SILENT]


async def schemas(url: str) -> set[str]:
    connection = await asyncpg.connect(read_address(url).dsn)
    try:
        return {row[0] for row in await connection.fetch("SELECT nspname FROM pg_namespace")}
    finally:
        await connection.close()


@pytest.mark.parametrize("shop", TELLING, indirect=True)
async def test_in_memory_a_commit_of_a_real_transaction_publishes(shop: Shop) -> None:
    async with Kit(shop.app) as kit:
        async with shop.transaction() as till:
            await till.publish("order.paid", {"order": 1})
            before = kit.published()

        with pytest.raises(LookupError):
            await fail(shop)

        assert before == []
        kit.assert_published("order.paid", payload={"order": 1}, times=1)
    assert await shop.events() == 0


async def fail(shop: Shop) -> None:
    async with shop.transaction() as till:
        await till.publish("order.paid", {"order": 2})
        raise LookupError


@pytest.mark.parametrize("shop", [Asyncpg, Psycopg], indirect=True)
async def test_in_memory_a_driver_that_does_not_tell_is_refused(shop: Shop) -> None:
    async with Kit(shop.app):
        with pytest.raises(TransactionError, match="does not tell this kit when it commits"):
            await fail(shop)


async def test_a_kit_has_a_schema_of_its_own_and_drops_it(app: Redrive, postgres_url: str) -> None:
    server = postgres_url.partition("?")[0]
    before = await schemas(server)

    async with Kit(app, store=server) as kit:
        during = await schemas(server)
        await app.publish("order.paid")
        assert (await kit.drain()).delivered == 1

    assert len(during - before) == 1
    assert await schemas(server) == before


def test_so_does_one_without_an_event_loop(postgres_url: str) -> None:
    server, app = postgres_url.partition("?")[0], Redrive("memory://")
    app.handler("order.*", name="billing")(lambda _: None)

    with SyncKit(app, store=f"{server}?schema=kit_of_mine") as kit:
        app.sync.publish("order.paid")
        assert kit.drain().delivered == 1

    with SyncKit(app, store=f"{server}?schema=kit_of_mine") as kit:
        kit.assert_nothing_published()


async def test_a_schema_that_was_there_before_is_left_alone(
    app: Redrive, postgres_url: str
) -> None:
    async with Kit(app, store=postgres_url):
        pass

    assert read_address(postgres_url).schema in await schemas(postgres_url)
