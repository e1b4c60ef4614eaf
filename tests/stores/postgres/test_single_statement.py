"""What takes a single trip to a PostgreSQL server, and when it must not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from redrive import Event, Redrive
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Kind, Leased, Status
from redrive.model.destination import Destination, Order
from redrive.model.event import Receipt
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered
from redrive.store import Query, Settled
from redrive.stores.postgres import PostgresStore, core
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR
from tests.servers.waiting import until_somebody_waits
from tests.waiting import PATIENCE_SECONDS


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


@pytest.mark.parametrize("key", [None, "one"], ids=["plain", "with an idempotency key"])
async def test_a_single_event_is_appended_in_one_trip_with_all_that_it_says(
    world: World, trips: list[str], key: str | None
) -> None:
    now = world.clock.now()
    event = an_event(
        1,
        idempotency_key=key,
        source="till",
        due=now + timedelta(minutes=5),
        deadline=now + timedelta(hours=1),
        priority=3,
        tenant="acme",
        generation="blue",
    )
    await publish(world, 1)
    version = await world.version()
    trips.clear()

    await world.store.append(entries(event), routes_version=version, all_or_nothing=False)

    assert len(trips) == 1
    found = await world.store.find(Query(status=Status.PENDING, event_id=event.id), limit=5)
    [stored] = found.deliveries
    assert (await world.store.find_event(event.id)) == event
    assert (stored.due, stored.deadline, stored.priority) == (event.due, event.deadline, 3)
    assert (stored.tenant, stored.generation, stored.kind) == ("acme", "blue", Kind.FIRST)


@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
async def test_a_destination_may_be_called_null(world: World, key: str | None) -> None:
    """In the text of an array, a bare null is not a name."""
    both = ["billing", "null"]
    await world.store.register([Destination(name=name, patterns=("*",)) for name in both])

    await world.append(
        [*entries(an_event(1, key=key), to=["null"]), *entries(an_event(2, key=key), to=both)]
    )

    log = await world.store.read_log("null", after=0, limit=10)
    assert (len(log.given), log.missing) == (2, ())


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


@pytest.mark.parametrize("polls", [0, 3], ids=["at work", "after idle polls"])
async def test_who_is_given_leases_in_one_trip_is_heard_of(
    world: World, trips: list[str], polls: int
) -> None:
    """Else it could be blamed for a crash a lease after its last heartbeat, though it claims."""
    await at_work(world)
    await claim(world)
    for _ in range(polls):
        assert not await claim(world)
    await publish(world, 12)
    world.clock.advance("1s")
    trips.clear()

    assert await claim(world)

    assert len(trips) == 1
    (worker,) = (await world.store.workload()).workers
    assert worker.seen_at == world.now


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


async def test_after_a_pause_what_is_fresh_is_claimed_in_one_trip_again(
    world: World, trips: list[str]
) -> None:
    await at_work(world)
    await world.store.pause("billing", actor=OPERATOR)
    world.clock.advance("1s")
    await world.store.resume("billing", actor=OPERATOR)
    held = await claim(world)
    world.clock.advance("1s")
    await publish(world, 10)
    await claim(world)
    trips.clear()

    fresh = await claim(world)

    assert (len(held), len(fresh)) == (5, 5)
    assert len(trips) == 1


async def test_a_breaker_that_was_opened_holds_at_once(world: World) -> None:
    await at_work(world)

    await world.store.open_breaker("billing", until=None, actor=OPERATOR)

    assert await claim(world) == ()


async def test_a_rate_that_is_new_is_kept_to_at_once(world: World) -> None:
    await at_work(world)

    limits = Limits(rate=Rate(per_second=1.0, burst=2.0))
    await world.declare(Destination(name="billing", patterns=("*",), limits=limits))

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


async def test_a_claim_meets_the_lanes_that_its_turn_has_freed(world: World) -> None:
    """Or a drain would take the store for empty, and end."""
    ledger = Destination(name="ledger", patterns=("*",), order=Order.SKIP)
    await world.store.register([ledger])
    await world.append(entries(*[an_event(n, key="a") for n in range(5)], to=["ledger"]))
    claimed = [*(await world.claim("ledger")).deliveries]

    while len(claimed) < 5:
        _, claim = await asyncio.gather(
            world.store.settle(arrived(claimed[-1])), world.claim("ledger")
        )
        assert len(claim.deliveries) == 1
        claimed += claim.deliveries


async def test_a_drain_delivers_all_of_a_lane(postgres_url: str) -> None:
    app, received = Redrive(postgres_url), list[int]()

    @app.handler("step", order="skip")
    async def ledger(event: Event[int]) -> None:
        received.append(event.payload)

    async with app:
        for number in range(20):
            await app.publish("step", number, key="a")
        await app.drain()

    assert received == list(range(20))


async def test_who_was_quiet_gets_an_equal_part_as_soon_as_there_is_work(world: World) -> None:
    names = ("billing", "mailing")
    await world.append(entries(*[an_event(n) for n in range(80)], to=["mailing"]))
    for _ in range(3):
        await world.claim(*names, total=10, limit=10)
    await world.append(entries(*[an_event(n) for n in range(100, 140)], to=["billing"]))

    await world.claim(*names, total=10, limit=10)
    claimed = (await world.claim(*names, total=10, limit=10)).deliveries

    assert [one.destination for one in claimed].count("billing") == 5


async def test_what_somebody_has_hold_of_is_asked_for_again_soon(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await at_work(world)

    async with person.transaction():
        await person.execute("SELECT FROM deliveries WHERE id = 7 FOR UPDATE")
        held = await world.claim("billing")
    rest = await world.claim("billing")

    assert [one.lease.delivery_id for one in held.deliveries] == [6, 8, 9, 10]
    assert held.next_due == world.clock.now() + timedelta(milliseconds=100)
    assert [one.lease.delivery_id for one in rest.deliveries] == [7]
    assert rest.next_due is None


async def test_who_gets_in_the_way_is_no_failure_of_the_store(
    postgres_url: str, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Where old snapshots are the rule, a change by somebody else is an error of the server."""
    url = f"{postgres_url}&default_transaction_isolation=repeatable%20read"
    async with World.opened(lambda clock: PostgresStore(url, clock=clock), history=20) as world:
        await publish(world, 10)
        claimed = await claim(world)
        held = [one.lease for one in claimed]
        async with asyncio.TaskGroup() as group, person.transaction():
            await person.execute("UPDATE deliveries SET lease_until = lease_until")
            beating = group.create_task(
                world.store.heartbeat("worker-1", held, lease=timedelta(seconds=30))
            )
            await until_somebody_waits(person)
        async with asyncio.TaskGroup() as group, person.transaction():
            await person.execute("UPDATE deliveries SET lease_until = lease_until")
            settling = group.create_task(world.store.settle(arrived(*claimed)))
            await until_somebody_waits(person)
        async with asyncio.TaskGroup() as group, person.transaction():
            await person.execute("UPDATE gates SET document = document")
            claiming = group.create_task(claim(world))
            await until_somebody_waits(person)

    assert not beating.result()
    assert not settling.result()
    assert len(claiming.result()) == 5


async def test_gates_are_locked_in_the_order_of_everybody(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    names = ("mailing", "billing")
    await world.append(entries(*[an_event(n) for n in range(9)], to=["billing"]))
    await world.claim(*names, total=5)
    first, second = [
        row[0] for row in await person.fetch("SELECT destination FROM gates ORDER BY 1")
    ][:2]

    async with asyncio.TaskGroup() as group, person.transaction():
        await person.execute("SELECT FROM gates WHERE destination = $1 FOR UPDATE", first)
        claiming = group.create_task(world.claim(*names, total=5))
        await until_somebody_waits(person)
        await person.execute("SELECT FROM gates WHERE destination = $1 FOR UPDATE NOWAIT", second)

    assert len(claiming.result().deliveries) == 4


async def test_a_turn_is_given_up_when_its_leases_would_have_ended(
    world: World,
    person: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "_LEAST_PATIENCE_SECONDS", 0.1)
    await at_work(world)

    async with person.transaction(), asyncio.timeout(PATIENCE_SECONDS):
        await person.execute("SELECT FROM gates FOR UPDATE")
        with pytest.raises(StoreUnavailableError, match="did not answer in time"):
            await world.claim("billing", lease="100ms")


async def test_a_claim_goes_by_one_statement_again_when_an_override_has_ended(
    world: World, trips: list[str]
) -> None:
    await at_work(world)
    await publish(world, 20)
    slow = Limits(rate=Rate(per_second=1.0, burst=2.0))
    await world.store.override("billing", slow, lasts=timedelta(seconds=5), actor=OPERATOR)

    assert len(await claim(world)) == 2
    world.clock.advance("5s")
    for _ in range(2):
        assert len(await claim(world)) == 5
    trips.clear()
    assert len(await claim(world)) == 5

    assert len(trips) == 1
