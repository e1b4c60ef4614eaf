"""What takes a single trip to a PostgreSQL server, and when it must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive.model.delivery import Kind, Leased
from redrive.model.destination import Destination, Order
from redrive.model.event import Receipt
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered
from redrive.store import Settled
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import Link
from redrive.testing.conformance import World, an_event, entries
from redrive.testing.conformance.world import OPERATOR


@pytest.fixture
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


async def publish(world: World, count: int, **fields: Any) -> None:  # noqa: ANN401 - of events
    await world.append(entries(*[an_event(n, **fields) for n in range(count)]))


async def claim(world: World, total: int = 5) -> tuple[Leased, ...]:
    return (await world.claim("billing", total=total)).deliveries


async def at_work(world: World) -> None:
    """Publish, and claim until the store knows that nothing has to be decided."""
    await publish(world, 10)
    assert len(await claim(world)) == 5


def arrived(*leased: Leased) -> list[Settled]:
    return [Settled(lease=one.lease, settlement=Delivered()) for one in leased]


async def test_events_without_a_key_are_appended_in_one_trip(
    world: World, trips: list[str]
) -> None:
    await publish(world, 1)
    batch = entries(an_event(1, idempotency_key="one"), an_event(2, tenant="acme"), an_event(3))
    version = await world.version()
    trips.clear()

    await world.store.append(batch, routes_version=version, all_or_nothing=True)

    assert len(trips) == 1


async def test_what_was_appended_before_is_noticed(world: World) -> None:
    first = entries(an_event(1, idempotency_key="one"))
    again = entries(an_event(1, idempotency_key="one"), an_event(2))

    await world.append(first)
    same = await world.append(first)
    mixed = await world.append(again)

    results = [*same.results, *mixed.results]
    assert [isinstance(one, Receipt) and one.is_duplicate for one in results] == [
        False,
        True,
        False,
    ]
    assert (await world.store.figures()).events == 2


async def test_a_claim_of_fresh_work_takes_one_trip(world: World, trips: list[str]) -> None:
    await at_work(world)
    trips.clear()

    claimed = await claim(world)

    assert [one.attempt for one in claimed] == [1] * 5
    assert [one.kind for one in claimed] == [Kind.FIRST] * 5
    assert len(trips) == 1


async def test_settling_what_has_arrived_takes_one_trip(world: World, trips: list[str]) -> None:
    await publish(world, 5)
    claimed = await claim(world)
    trips.clear()

    refused = await world.store.settle(arrived(*claimed))

    assert refused == ()
    assert len(trips) == 1
    assert (await world.figures_of("billing")).delivered == 5


async def test_a_late_lease_is_refused_at_once_too(world: World) -> None:
    await publish(world, 2)
    claimed = await claim(world)
    world.clock.advance("31s")

    refused = await world.store.settle(arrived(*claimed))

    assert list(refused) == [one.lease for one in claimed]
    assert (await world.store.figures()).refused_settlements == 2


async def test_a_pause_holds_at_once(world: World) -> None:
    await at_work(world)

    await world.store.pause("billing", actor=OPERATOR)

    assert await claim(world) == ()


async def test_a_breaker_that_was_opened_holds_at_once(world: World) -> None:
    await at_work(world)

    await world.store.open_breaker("billing", until=None, actor=OPERATOR)

    assert await claim(world) == ()


async def test_a_rate_that_is_new_is_kept_to_at_once(world: World) -> None:
    await at_work(world)

    limits = Limits(rate=Rate(per_second=1.0, burst=2.0))
    await world.store.register([Destination(name="billing", patterns=("*",), limits=limits)])

    assert len(await claim(world)) == 2


async def test_what_is_retried_is_claimed_before_what_is_fresh(world: World) -> None:
    await publish(world, 10)
    first, *_ = await claim(world)
    await world.retry(first, wait="0s")

    claimed = await claim(world)

    assert claimed[0].lease.delivery_id == first.lease.delivery_id
    assert claimed[0].kind is Kind.RETRY


async def test_tenants_take_turns_as_soon_as_there_are_any(world: World) -> None:
    await at_work(world)

    await publish(world, 5, tenant="acme")
    claimed = await claim(world, total=6)

    assert sorted(one.event.tenant or "" for one in claimed) == [""] * 3 + ["acme"] * 3


async def test_what_is_urgent_goes_first(world: World) -> None:
    await at_work(world)

    await publish(world, 1, priority=9)
    claimed = await claim(world)

    assert claimed[0].event.priority == 9


async def test_the_next_of_a_lane_is_freed_although_others_settle_at_once(world: World) -> None:
    ledger = Destination(name="ledger", patterns=("*",), order=Order.PARK)
    await world.store.register([ledger])
    await world.append(entries(an_event(1, key="a"), an_event(2, key="a"), to=["ledger"]))
    (head,) = (await world.claim("ledger")).deliveries

    await world.store.settle(arrived(head))

    (following,) = (await world.claim("ledger")).deliveries
    assert following.lease.delivery_id > head.lease.delivery_id


async def test_two_who_claim_at_once_never_get_the_same(world: World) -> None:
    await publish(world, 60)
    async with world.another() as other:
        await claim(world)
        await claim(other)

        taken = await asyncio.gather(
            *(claim(world) for _ in range(5)), *(claim(other) for _ in range(5))
        )

    ids = [one.lease.delivery_id for some in taken for one in some]
    assert len(ids) == 50
    assert sorted(ids) == list(range(11, 61))


async def test_several_destinations_share_the_places_by_what_they_have(world: World) -> None:
    names = ("billing", "mailing")
    await world.append(entries(*[an_event(n) for n in range(40)], to=["mailing"]))
    await world.claim(*names, total=10, limit=10)

    first = (await world.claim(*names, total=10, limit=10)).deliveries
    second = (await world.claim(*names, total=10, limit=10)).deliveries

    assert len(first) >= 5
    assert len(second) >= 9
