"""An open transaction of the application that holds a key keeps nobody else from publishing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypedDict

import asyncpg
import pytest

from redrive import Event, NewEvent, Receipt, Redrive
from redrive.errors import StoreUnavailableError
from redrive.stores.postgres import publishing
from redrive.stores.postgres.connection import read_address
from tests.servers.waiting import until_somebody_waits

WELL_BEFORE_IT_GIVES_UP = 8
"""Seconds; who needs a key that is held waits longer, and nobody else may wait for them."""


class Fields(TypedDict, total=False):
    """What an event may wait for."""

    key: str
    idempotency_key: str


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Redrive]:
    app = Redrive(postgres_url)

    @app.handler("order.*", name="billing")
    async def bill(event: Event[int]) -> None: ...

    async with asyncio.timeout(60), app:
        yield app


@pytest.fixture
async def shop(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the application's own."""
    address = read_address(postgres_url)
    connection = await asyncpg.connect(address.dsn)
    await connection.execute(f"SET search_path = {address.schema}")
    yield connection
    await connection.close()


def together(app: Redrive, held: Fields) -> list[asyncio.Task[Receipt]]:
    """Publish what needs the key that is held amid a hundred that do not."""
    several: list[Fields] = [
        *(Fields(idempotency_key=f"before {n}") for n in range(30)),
        *(Fields(key=f"key {n % 7}") for n in range(30)),
        held,
        *(Fields() for _ in range(10)),
        *(Fields(idempotency_key=f"after {n}") for n in range(30)),
    ]
    return [
        asyncio.create_task(app.publish("order.paid", number, **fields))
        for number, fields in enumerate(several)
    ]


@pytest.mark.parametrize(
    "held", [Fields(idempotency_key="K"), Fields(key="K")], ids=["once", "order"]
)
async def test_only_who_needs_the_key_waits_for_who_holds_it(
    app: Redrive, shop: asyncpg.Connection, held: Fields
) -> None:
    async with shop.transaction():
        await app.publish("order.paid", 60, **held, within=shop)

        publishing = together(app, held)
        waiting = publishing[60]
        async with asyncio.timeout(WELL_BEFORE_IT_GIVES_UP):
            await asyncio.gather(*(one for one in publishing if one is not waiting))
            await asyncio.gather(*(app.publish("order.paid", n) for n in range(10)))
            await app.publish("order.paid", 1, idempotency_key="another")

        assert not waiting.done()
    receipt = await waiting

    assert (receipt.is_duplicate, receipt.version) == (
        (True, None) if "idempotency_key" in held else (False, 2)
    )


async def test_who_waited_for_what_was_rolled_back_is_stored(
    app: Redrive, shop: asyncpg.Connection
) -> None:
    transaction = shop.transaction()
    await transaction.start()
    theirs = await app.publish("order.paid", 60, idempotency_key="K", within=shop)
    waiting = asyncio.ensure_future(app.publish("order.paid", 60, idempotency_key="K"))
    await until_somebody_waits(shop)

    await transaction.rollback()
    receipt = await waiting

    assert not receipt.is_duplicate
    assert receipt.event_id != theirs.event_id


async def test_many_who_need_one_key_wait_together_and_in_order(
    app: Redrive, shop: asyncpg.Connection
) -> None:
    async with shop.transaction():
        await app.publish("order.paid", -1, key="K", within=shop)
        waiting = [asyncio.ensure_future(app.publish("order.paid", n, key="K")) for n in range(3)]
        await until_somebody_waits(shop)
        waiting += [
            asyncio.ensure_future(app.publish("order.paid", n, key="K")) for n in range(3, 6)
        ]
        async with asyncio.timeout(WELL_BEFORE_IT_GIVES_UP):
            await app.publish("order.paid", 100, key="L")
    receipts = await asyncio.gather(*waiting)

    assert [one.version for one in receipts] == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("call", ["publish", "publish_many"])
async def test_who_waits_for_many_keys_leaves_connections_to_others(
    app: Redrive, shop: asyncpg.Connection, call: str
) -> None:
    """An import, say, that publishes for a thousand customers in one transaction."""
    held = [NewEvent(type="order.paid", payload=0, key=f"key {n}") for n in range(150)]
    async with shop.transaction():
        await app.publish_many(held, within=shop)
        waiting: list[asyncio.Future[object]] = [
            asyncio.ensure_future(
                app.publish_many([one])
                if call == "publish_many"
                else app.publish("order.paid", 0, key=one.key)
            )
            for one in held
        ]
        await until_somebody_waits(shop)

        # While each of them meets the key that it needs: who kept a connection would be in the way.
        for _ in range(20):
            async with asyncio.timeout(WELL_BEFORE_IT_GIVES_UP):
                await app.publish("order.paid", 1)

        assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)


async def test_the_application_is_never_the_victim_of_a_deadlock(
    app: Redrive, shop: asyncpg.Connection
) -> None:
    """Ours has taken one key and waits for another, which who holds it then asks for."""
    await app.publish("order.paid", 0, key="K")
    async with shop.transaction():
        await app.publish("order.paid", 1, key="K", within=shop)
        one = asyncio.ensure_future(app.publish("order.paid", 2, key="K", idempotency_key="I"))
        many = asyncio.ensure_future(
            app.publish_many([NewEvent(type="order.paid", payload=3, key="K", idempotency_key="J")])
        )
        await until_somebody_waits(shop)

        await app.publish("order.paid", 2, key="K", idempotency_key="I", within=shop)
        await app.publish("order.paid", 3, key="K", idempotency_key="J", within=shop)

    assert (await one).is_duplicate
    assert [each.is_duplicate for each in await many] == [True]


async def test_waiting_for_a_key_ends_with_advice(
    app: Redrive, shop: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_WAITS", 1)
    async with shop.transaction():
        await app.publish("order.paid", 1, idempotency_key="K", within=shop)

        with pytest.raises(StoreUnavailableError, match="Commit it or roll it back"):
            await app.publish("order.paid", 1, idempotency_key="K")
        with pytest.raises(StoreUnavailableError, match="Commit it or roll it back"):
            await app.publish_many([NewEvent(type="order.paid", payload=1, idempotency_key="K")])

    assert (await app.publish("order.paid", 1, idempotency_key="K")).is_duplicate


async def test_who_gives_up_waiting_for_a_key_takes_nobody_with_it(
    app: Redrive, shop: asyncpg.Connection
) -> None:
    async with shop.transaction():
        await app.publish("order.paid", 1, idempotency_key="K", within=shop)
        impatient, patient = (
            asyncio.ensure_future(app.publish("order.paid", 1, idempotency_key="K"))
            for _ in range(2)
        )
        await until_somebody_waits(shop)
        impatient.cancel()
    receipt = await patient

    assert impatient.cancelled()
    assert receipt.is_duplicate
