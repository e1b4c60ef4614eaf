"""Transactions that publish by an old view of the data: lanes are looked at again when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import pytest

from redrive.model.delivery import Status
from redrive.model.destination import Destination, Order
from redrive.model.settlement import Delivered
from redrive.store import RoutesChanged
from redrive.stores.postgres.connection import read_address
from tests.conformance import World
from tests.conformance.world import LEDGER, OPERATOR, an_event, entries

Begin = Callable[[], Any]


@pytest.fixture(params=["read_committed", "repeatable_read", "serializable"])
def begin(request: pytest.FixtureRequest, postgres_url: str) -> Begin:
    """Begin a transaction of an application's that has taken its view of the data."""

    @asynccontextmanager
    async def transaction() -> AsyncIterator[Any]:
        connection = await asyncpg.connect(read_address(postgres_url).dsn)
        try:
            async with connection.transaction(isolation=request.param):
                await connection.execute("SELECT 1 FROM pg_class LIMIT 1")
                yield connection
        finally:
            await connection.close()

    return transaction


async def publish(
    world: World, payload: object, *, within: object = None, due: datetime | None = None
) -> None:
    """Publish to the ledger, by the routes that can be seen."""
    appended: object = RoutesChanged(await world.store.routes())
    while isinstance(appended, RoutesChanged):
        appended = await world.store.append(
            entries(an_event(payload, key="k", due=due), to=["ledger"]),
            routes_version=appended.routes.version,
            all_or_nothing=True,
            within=within,
        )


async def drain(world: World) -> list[list[object]]:
    """Deliver all that the ledger has; return the payloads of one claim after the other."""
    for _ in range(5):
        await world.store.catch_up()
    claims = []
    while (claim := await world.claim("ledger")).deliveries:
        claims.append([msgspec.json.decode(one.event.payload) for one in claim.deliveries])
        for one in claim.deliveries:
            await world.settle(one, Delivered())
    return claims


def ledger(order: Order) -> Destination:
    return msgspec.structs.replace(LEDGER, order=order)


async def test_it_does_not_wait_for_what_was_delivered_meanwhile(
    world: World, begin: Begin
) -> None:
    await world.store.register([LEDGER])
    await publish(world, "first")
    async with begin() as connection:
        assert await drain(world) == [["first"]]
        await publish(world, "second", within=connection)
        await publish(world, "third", within=connection)
    await publish(world, "fourth")

    assert await drain(world) == [["second"], ["third"], ["fourth"]]


@pytest.mark.parametrize("act", ["resolve", "delete"])
async def test_it_does_not_wait_for_a_dead_letter_that_a_person_took_away(
    world: World, begin: Begin, act: str
) -> None:
    [letter] = await world.publish(an_event("first", key="k"), to="ledger")
    await world.fail(await world.claim_one("ledger"))
    async with begin() as connection:
        await getattr(world.store, act)([letter], actor=OPERATOR)
        await publish(world, "second", within=connection)

    assert await drain(world) == [["second"]]


async def test_it_goes_behind_a_dead_letter_that_came_back(world: World, begin: Begin) -> None:
    """By its view nobody is in the lane; by the time it commits somebody waits there again."""
    await world.declare(ledger(Order.SKIP))
    await publish(world, "first")
    leased = await world.claim_one("ledger")
    await world.fail(leased)
    async with begin() as connection:
        await world.store.replay([leased.lease.delivery_id], actor=OPERATOR)
        await publish(world, "second", within=connection)

    assert await drain(world) == [["first"], ["second"]]


async def test_what_waits_for_nobody_is_told(world: World, person: Any) -> None:  # noqa: ANN401 - a driver's
    """As a worker of another release might leave it."""
    await world.store.register([LEDGER])
    await publish(world, "first")
    await publish(world, "second")
    assert await world.store.stuck() == ()

    await person.execute("UPDATE deliveries SET is_behind = true")

    [first, _] = sorted(one.id for one in await world.found(status=Status.PENDING))
    assert await world.store.stuck() == (first,)
    await person.execute("INSERT INTO late_lanes SELECT destination, lane FROM deliveries LIMIT 1")
    assert await world.store.stuck() == ()  # the next claim looks at it
    assert [one.behind for one in await world.found(status=Status.PENDING)] == [first, None]
    figures = await world.figures_of("ledger")
    assert (figures.behind, figures.due) == (1, 1)
    assert await drain(world) == [["first"], ["second"]]


@pytest.mark.parametrize("before", [Order.PARK, Order.SKIP, Order.BLOCK])
async def test_it_leaves_its_lane_when_order_is_given_up(
    world: World, begin: Begin, before: Order
) -> None:
    await world.declare(ledger(before))
    await publish(world, "first", due=world.after("1h"))
    async with begin() as connection:
        await publish(world, "second", within=connection)
        await world.declare(ledger(Order.NONE))
        await publish(world, "third", within=connection)

    assert await drain(world) == [["second", "third"]]


@pytest.mark.parametrize("after", [Order.PARK, Order.SKIP, Order.BLOCK])
async def test_it_takes_its_place_when_order_is_asked_for(
    world: World, begin: Begin, after: Order
) -> None:
    await world.declare(ledger(Order.NONE))
    await publish(world, "first")
    async with begin() as connection:
        await publish(world, "second", within=connection)
        await world.declare(ledger(after))
        await publish(world, "third", within=connection)

    assert await drain(world) == [["first"], ["second"], ["third"]]
