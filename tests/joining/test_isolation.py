"""Whatever a transaction can see, what it publishes takes its place among the others of its key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from redrive import Event, Redrive
from tests.joining.drivers import Shop, Till

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


@pytest.fixture
def got() -> list[object]:
    """What the ledger got, in that order."""
    return []


@pytest.fixture
async def app(postgres_url: str, got: list[object]) -> AsyncIterator[Redrive]:
    app = Redrive(postgres_url)

    @app.handler("order.*", name="ledger", order="park")
    async def write(event: Event[object]) -> None:
        got.append(event.payload)

    async with app:
        yield app
    await asyncio.to_thread(app.sync.close)


async def begin(till: Till, level: str) -> None:
    """Let a transaction take its view of the data."""
    await till.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    await till.execute("SELECT 1 FROM pg_class LIMIT 1")


@pytest.mark.parametrize("level", LEVELS)
async def test_it_does_not_wait_for_what_was_delivered_meanwhile(
    shop: Shop, got: list[object], level: str
) -> None:
    await shop.app.publish("order.placed", "first", key="k")
    async with shop.transaction() as till:
        await begin(till, level)
        assert (await shop.app.drain()).delivered == 1
        await till.publish("order.paid", "second", key="k")
        await till.publish("order.sent", "third", key="k")
        await till.publish("order.sent", "apart", key="other")
    await shop.app.publish("order.sent", "fourth", key="k")

    assert (await shop.app.drain()).delivered == 4
    assert [one for one in got if one != "apart"] == ["first", "second", "third", "fourth"]
