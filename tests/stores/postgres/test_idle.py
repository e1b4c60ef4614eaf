"""What a worker without work asks a PostgreSQL server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from redrive import Event, Redrive
from redrive.clock import SystemClock
from redrive.model.destination import Destination, Order
from redrive.model.limits import Breaker, Limits, Rate
from redrive.model.outcome import Fault
from redrive.model.retention import Retention
from redrive.store import Allowance, Claim, ClaimRequest, Serving
from redrive.stores.postgres import PostgresStore, notifications
from redrive.worker.maintenance import housekeeper as housekeeping
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR, blame
from tests.waiting import eventually

BILLING = Destination(name="billing", patterns=("*",))


@pytest.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with World.opened(
        lambda clock: PostgresStore(postgres_url, clock=clock), history=20
    ) as world:
        await world.store.register([BILLING])
        yield world


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A store that goes by the server's clock."""
    store = PostgresStore(postgres_url, clock=SystemClock())
    await store.open()
    await store.register([BILLING])
    yield store
    await store.close()


async def poll(store: PostgresStore) -> Claim:
    return await store.claim(
        ClaimRequest(
            worker="worker-1",
            allowances=(Allowance(destination="billing", total=5),),
            generations=("default",),
            limit=1_000,
            lease=timedelta(seconds=15),
        )
    )


def no_fault(*_: object) -> Fault:
    raise AssertionError("nothing is to fail here")


async def look_after(store: PostgresStore) -> None:
    """Do what a caretaker does in each round."""
    await store.expire(blame=no_fault)
    await store.shed(blame=no_fault)
    await store.overdue()


async def test_a_poll_and_the_duties_of_an_idle_worker_take_one_trip(
    store: PostgresStore, trips: list[str]
) -> None:
    for _ in range(3):
        await poll(store)
    trips.clear()

    await poll(store)
    await look_after(store)

    assert len(trips) == 1


async def test_duties_look_again_after_something_was_changed(
    store: PostgresStore, trips: list[str]
) -> None:
    for _ in range(4):
        await poll(store)
    await store.heartbeat("worker-1", [], lease=timedelta(seconds=15))
    trips.clear()

    await look_after(store)

    assert len(trips) == 1


async def test_what_an_idle_poll_has_seen_is_acted_upon(world: World) -> None:
    """With a clock of its own, a store keeps nothing that it has seen."""
    await world.append(entries(an_event(1, deadline=world.after("5s"), due=world.after("1h"))))
    for _ in range(3):
        await world.claim("billing")
    world.clock.advance("6s")
    await world.claim("billing")

    expired = await world.store.expire(blame=blame)

    assert len(expired) == 1


async def test_idle_polls_are_heartbeats(world: World) -> None:
    serving = Serving(("billing",), ("default",))
    await world.store.heartbeat("worker-1", [], lease=timedelta(seconds=30), serving=serving)
    for _ in range(2):
        await world.claim("billing")
    world.clock.advance("6s")

    claim = await world.claim("billing")

    assert claim.is_heartbeat
    (worker,) = (await world.store.workload()).workers
    assert worker.seen_at == world.now
    assert worker.serving == serving


async def test_idle_polls_are_no_heartbeats_of_a_worker_that_is_not_on_record(world: World) -> None:
    """It was silent for a day while its machine slept, or its first heartbeat has failed."""
    serving = Serving(("billing",), ("default",))
    ordered = Destination(name="ledger", patterns=("*",), order=Order.PARK)
    await world.store.register([ordered])
    await world.store.heartbeat("worker-1", [], lease=timedelta(seconds=30), serving=serving)
    for _ in range(2):
        assert not (await world.claim("billing")).deliveries
    assert (await world.claim("billing")).is_heartbeat

    await world.store.retire("worker-1")

    assert not (await world.claim("billing")).is_heartbeat
    for _ in range(2):
        assert not (await world.claim("billing", "ledger")).is_heartbeat


async def test_a_worker_that_polls_for_the_first_time_is_on_record(world: World) -> None:
    await world.claim("billing")

    (worker,) = (await world.store.workload()).workers
    assert (worker.id, worker.seen_at) == ("worker-1", world.now)


async def test_an_idle_poll_still_finds_work(world: World) -> None:
    for _ in range(3):
        await world.claim("billing")
    await world.append(entries(an_event(1)))

    claim = await world.claim("billing")

    assert len(claim.deliveries) == 1


async def test_housekeeping_without_anything_to_do_takes_few_trips(
    store: PostgresStore, trips: list[str]
) -> None:
    span = timedelta(seconds=60)
    await store.take_watch("keeping", "worker-1", span=span)
    trips.clear()

    assert await store.take_watch("keeping", "worker-1", span=span)
    assert not await store.take_watch("keeping", "worker-2", span=span)
    await store.prune(Retention())
    await store.letter_quotas()
    await store.workload()

    assert len(trips) == 5


@pytest.mark.parametrize("options", [{}, {"order": "park", "breaker": Breaker(), "rate": "9/s"}])
async def test_an_idle_worker_sends_at_most_two_statements_for_each_of_its_polls(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, options: Mapping[str, Any]
) -> None:
    """Duties, housekeeping and a look at the connection that listens included, ten times as quick.

    An idle worker polls once a second.
    """
    monkeypatch.setattr(housekeeping, "_LOOK_SECONDS", housekeeping._LOOK_SECONDS / 10)  # noqa: SLF001
    monkeypatch.setattr(notifications, "_PULSE_SECONDS", notifications._PULSE_SECONDS / 10)  # noqa: SLF001
    asked: list[str] = []
    make = asyncpg.Connection.__init__

    def made(connection: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401 - the driver's
        make(connection, *given, **named)
        connection.add_query_logger(lambda one: asked.append(one.query))

    monkeypatch.setattr(asyncpg.Connection, "__init__", made)
    app = Redrive(postgres_url, poll="0.1s")

    @app.handler("order.*", **options)
    async def bill(_: Event[None]) -> None: ...

    def polls() -> int:
        return sum("is_on_record" in statement for statement in asked)

    async with app, app.worker():
        await eventually(lambda: polls() > 10, what="at rest")
        asked.clear()
        await eventually(lambda: polls() >= 40, what="more polls")

        assert any("letters_kept" in statement for statement in asked)
        assert "SELECT 1" in asked
        assert len(asked) <= 2 * polls()


async def test_a_poll_of_ordered_and_limited_destinations_takes_one_trip_too(
    world: World, trips: list[str]
) -> None:
    limits = Limits(rate=Rate(per_second=5.0, burst=5.0), breaker=Breaker(), concurrency=3)
    ledger = Destination(name="ledger", patterns=("*",), order=Order.PARK, limits=limits)
    await world.store.register([ledger])
    await world.append(entries(an_event(1, key="a", due=world.after("9s")), to=["ledger"]))
    await world.claim("ledger", "billing")
    trips.clear()

    claim = await world.claim("ledger", "billing")

    assert (claim.deliveries, claim.next_due) == ((), world.after("9s"))
    assert len(trips) == 1

    world.clock.advance("9s")
    assert len((await world.claim("ledger", "billing")).deliveries) == 1


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_an_idle_poll_sees_what_is_not_plain(world: World, tenant: str | None) -> None:
    await world.store.register(
        [Destination(name="ledger", patterns=("*",), order=Order.SKIP, limits=Limits())]
    )
    for _ in range(2):
        assert (await world.claim("ledger")).deliveries == ()
    await world.append(entries(an_event(1, key="a", tenant=tenant), to=["ledger"]))

    claim = await world.claim("ledger")

    assert len(claim.deliveries) == 1


async def test_an_idle_poll_of_an_open_breaker_lets_it_half_open(world: World) -> None:
    limits = Limits(breaker=Breaker())
    await world.store.register([Destination(name="api", patterns=("*",), limits=limits)])
    await world.store.open_breaker("api", until=world.after("5s"), actor=OPERATOR)
    for _ in range(2):
        await world.claim("api")
    world.clock.advance("6s")

    claim = await world.claim("api")

    assert [one.destination for one in claim.changes] == ["api"]
