"""Claims on PostgreSQL beside others who hold the same rows, and what a claim costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from redrive.model.destination import Destination
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import Link, read_address
from redrive.testing.conformance import World, an_event, entries


@pytest_asyncio.fixture
async def person(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    address = read_address(postgres_url)
    connection = await asyncpg.connect(address.dsn)
    await connection.execute(f"SET search_path = {address.schema}")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with World.opened(
        lambda clock: PostgresStore(postgres_url, clock=clock), history=20
    ) as world:
        yield world


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that are sent to the server."""
    sent: list[str] = []
    fetch = Link.fetch

    async def noted(self: Link, statement: str, *values: object) -> list[Any]:
        sent.append(statement)
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Link, "fetch", noted)
    return sent


async def publish(world: World, *tenants: str | None, to: tuple[str, ...] = ("shop",)) -> None:
    await world.store.register([Destination(name=name, patterns=("*",)) for name in to])
    batch = entries(*(an_event(tenant=tenant) for tenant in tenants), to=list(to))
    version = (await world.store.routes()).version
    await world.store.append(batch, routes_version=version, all_or_nothing=True)


async def test_a_claim_does_not_wait_for_a_row_that_somebody_is_changing(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await publish(world, "a", "a", "a")
    async with person.transaction():
        await person.execute("UPDATE deliveries SET status = 2 WHERE id = 1")
        async with asyncio.timeout(10):
            first = await world.claim("shop", total=2)
    second = await world.claim("shop", total=2)
    assert [one.lease.delivery_id for one in first.deliveries] == [2]
    assert first.next_due == world.clock.now() + timedelta(milliseconds=100)
    assert [one.lease.delivery_id for one in second.deliveries] == [3]
    assert second.next_due is None


@pytest.mark.parametrize(
    ("tenants", "to", "most"),
    [
        ([None] * 9, ("shop",), 3),
        ([None] * 9, ("shop", "mail", "stock"), 3),
        (["acme"] * 9, ("shop",), 3),
        (["acme", "bolt", "coil"] * 3, ("shop",), 4),
    ],
    ids=["no tenants", "three destinations", "one tenant", "three tenants"],
)
async def test_a_claim_asks_the_server_few_times(
    world: World, trips: list[str], tenants: list[str | None], to: tuple[str, ...], most: int
) -> None:
    await publish(world, *tenants, to=to)
    await world.claim(*to, total=1)
    trips.clear()
    claim = await world.claim(*to, total=5)
    assert len(claim.deliveries) == 5 * len(to)
    assert len(trips) == most
