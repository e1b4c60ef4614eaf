"""Reports, settlements and claims of one turn that do not wait for each other on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from redrive.model.delivery import Leased
from redrive.model.destination import Destination, Order
from redrive.model.gate import Closed, Open
from redrive.model.limits import Breaker, Limits
from redrive.model.settlement import Delivered
from redrive.store import Report, Settled
from redrive.stores.postgres.notifications import Notifications
from redrive.stores.postgres.pool import Link
from tests.conformance import World, an_event, entries

LEDGER = Destination(name="ledger", patterns=("*",), order=Order.PARK)
API = Destination(name="api", patterns=("*",), limits=Limits(breaker=Breaker(failures=3)))


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Link, str]]:
    """Collect the statements that are sent to the server, and the transactions they are of."""
    sent: list[tuple[Link, str]] = []
    fetch = Link.fetch

    async def noted(self: Link, statement: str, *values: object) -> list[Any]:
        sent.append((self, statement))
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Link, "fetch", noted)
    return sent


def arrived(leased: Sequence[Leased]) -> list[Settled]:
    return [Settled(lease=one.lease, settlement=Delivered()) for one in leased]


async def report(world: World, *, is_success: bool, times: int = 1) -> None:
    told = Report(destination="api", generation=0, is_success=is_success, times=times)
    await world.store.report([told], chance=0.0)


async def with_a_known_breaker(world: World) -> None:
    await world.store.register([API])
    await world.append(entries(an_event(1), an_event(2), to=["api"]))
    await world.claim("api", total=1)


async def breaker_of(world: World) -> object:
    return next(one.gate.breaker for one in await world.store.gates() if one.destination == "api")


async def test_a_success_that_is_no_news_takes_one_trip(
    world: World, trips: list[tuple[Link, str]]
) -> None:
    await with_a_known_breaker(world)
    trips.clear()

    await report(world, is_success=True, times=500)

    assert len(trips) == 1
    assert await breaker_of(world) == Closed()


async def test_a_success_is_news_after_failures_that_somebody_else_has_reported(
    world: World,
) -> None:
    await with_a_known_breaker(world)
    async with world.another() as other:
        await report(other, is_success=False, times=2)

        await report(world, is_success=True)

        assert await breaker_of(world) == Closed()


async def test_failures_are_always_news(world: World) -> None:
    await with_a_known_breaker(world)

    await report(world, is_success=True)
    await report(world, is_success=False, times=3)

    assert isinstance(await breaker_of(world), Open)


async def test_a_success_counts_where_the_share_of_failures_does(world: World) -> None:
    limits = Limits(breaker=Breaker(rate=0.5))
    await world.declare(Destination(name="api", patterns=("*",), limits=limits))
    await world.append(entries(an_event(1), to=["api"]))
    await world.claim("api")

    await report(world, is_success=True, times=7)

    state = await breaker_of(world)
    assert isinstance(state, Closed)
    assert state.calls == 7


async def test_a_busy_worker_settles_beside_its_claim(
    world: World, trips: list[tuple[Link, str]]
) -> None:
    await world.store.register([LEDGER])
    await world.append(entries(*[an_event(n, key=f"k{n}") for n in range(9)], to=["ledger"]))
    first = await world.claim("ledger", total=3)
    trips.clear()

    refused, second = await asyncio.gather(
        world.store.settle(arrived(first.deliveries)), world.claim("ledger", total=3)
    )

    assert refused == []
    assert len(second.deliveries) == 3
    assert len({id(link) for link, _ in trips}) == 2
    assert (await world.figures_of("ledger")).delivered == 3


async def test_a_claim_with_room_meets_what_was_freed_beside_it(world: World) -> None:
    await world.store.register([LEDGER])
    keys = ["a", "a", "b"]
    await world.append(
        entries(*[an_event(n, key=key) for n, key in enumerate(keys)], to=["ledger"])
    )
    first = await world.claim("ledger", total=1)

    _, second = await asyncio.gather(
        world.store.settle(arrived(first.deliveries)), world.claim("ledger", total=5)
    )

    assert sorted(one.event.key or "" for one in second.deliveries) == ["a", "b"]


async def test_what_was_freed_is_within_the_limit_of_the_claim(world: World) -> None:
    await world.store.register([LEDGER])
    keys = ["a", "a", "b", "c", "c", "d"]
    await world.append(
        entries(*[an_event(n, key=key) for n, key in enumerate(keys)], to=["ledger"])
    )
    first = await world.claim("ledger", total=2, limit=2)
    assert [one.event.key for one in first.deliveries] == ["a", "b"]

    _, second = await asyncio.gather(
        world.store.settle(arrived(first.deliveries)), world.claim("ledger", total=5, limit=3)
    )

    assert sorted(one.event.key or "" for one in second.deliveries) == ["a", "c", "d"]


async def test_a_claim_that_counts_what_is_in_flight_comes_after_the_settlements(
    world: World,
) -> None:
    limits = Limits(concurrency=2)
    await world.store.register(
        [Destination(name="ledger", patterns=("*",), order=Order.PARK, limits=limits)]
    )
    await world.append(entries(*[an_event(n, key=f"k{n}") for n in range(6)], to=["ledger"]))
    first = await world.claim("ledger", total=2)

    _, second = await asyncio.gather(
        world.store.settle(arrived(first.deliveries)), world.claim("ledger", total=2)
    )

    assert len(second.deliveries) == 2


async def test_lanes_that_are_freed_ring_less_often_than_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[None] = []
    notify = Notifications.notify

    def noted(self: Notifications) -> None:
        sent.append(None)
        notify(self)

    monkeypatch.setattr(Notifications, "notify", noted)
    await world.store.register([LEDGER])
    await world.append(entries(*[an_event(n, key="a") for n in range(30)], to=["ledger"]))
    sent.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()

    for _ in range(30):
        claim = await world.claim("ledger")
        await world.store.settle(arrived(claim.deliveries))

    assert 1 <= len(sent) <= 2 + (loop.time() - began) / 0.1
