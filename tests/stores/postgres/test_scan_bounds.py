"""Where a claim begins to look on PostgreSQL: behind what has gone, before what may still come.

With `REDRIVE_TEST_LONG=1` the run beside a transaction that is left open has its full size.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

import asyncpg
import pytest

from redrive.model.delivery import DeliveryId
from redrive.model.settlement import Delivered
from redrive.store import Appended, Settled
from redrive.stores.postgres import PostgresStore, append
from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.scan_bounds import ScanBounds
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sealed import PLAIN
from redrive.testing.clock import FakeClock
from tests.conformance import World, an_event, entries
from tests.conformance.world import OPERATOR

IS_LONG = bool(os.environ.get("REDRIVE_TEST_LONG"))
DELIVERIES = 500_000 if IS_LONG else 6_000
BATCH = 500
BILLING = (1, "default", "")


@pytest.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    def make_store(clock: FakeClock) -> PostgresStore:
        store = PostgresStore(postgres_url, clock=clock, history=20)
        store.facts.bounds = ScanBounds(clock, far=5, between_checks=timedelta(0))
        return store

    async with World.opened(make_store, history=20) as world:
        yield world


@pytest.fixture
async def somebody(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(read_address(postgres_url).dsn)
    yield connection
    await connection.close()


def bound(world: World) -> int:
    assert isinstance(world.store, PostgresStore)
    return world.store.facts.bounds.below(BILLING)


async def publish(world: World, count: int) -> None:
    for begin in range(0, count, 1_000):
        size = min(1_000, count - begin)
        await world.append(entries(*[an_event() for _ in range(size)]))


async def deliver(world: World, *, total: int = 10) -> list[DeliveryId]:
    claimed = (await world.claim("billing", total=total)).deliveries
    await world.store.settle([Settled(lease=one.lease, settlement=Delivered()) for one in claimed])
    return [one.lease.delivery_id for one in claimed]


async def deliver_all(world: World) -> list[DeliveryId]:
    delivered: list[DeliveryId] = []
    while some := await deliver(world):
        delivered += some
    return delivered


async def publish_within(
    world: World, connection: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    appended = await append.append(
        PostgresSession(connection, read_address(url).schema, PLAIN),
        entries(an_event()),
        routes_version=await world.version(),
        all_or_nothing=True,
        now=world.now,
    )
    assert isinstance(appended, Appended)


async def test_a_claim_begins_behind_what_has_gone(world: World) -> None:
    await publish(world, 60)

    await deliver_all(world)
    await deliver(world)

    assert bound(world) > 50


async def test_it_begins_at_the_first_that_is_left(world: World) -> None:
    await publish(world, 60)

    for _ in range(5):
        await deliver(world)

    assert 0 < bound(world) < 50
    assert await deliver_all(world) == [51, 52, 53, 54, 55, 56, 57, 58, 59, 60]


async def test_what_commits_late_is_claimed(
    world: World, somebody: asyncpg.Connection[asyncpg.Record], postgres_url: str
) -> None:
    """Its number is lower than those of a hundred that were published and claimed before it."""
    await world.version()
    late = somebody.transaction()
    await late.start()
    await publish_within(world, somebody, postgres_url)
    await publish(world, 100)
    before = await deliver_all(world)

    await late.commit()
    after = await deliver_all(world)

    assert before == list(range(2, 102))
    assert after == [1]


async def test_a_transaction_that_publishes_nothing_holds_nothing_up(
    world: World, somebody: asyncpg.Connection[asyncpg.Record]
) -> None:
    await publish(world, 60)
    async with somebody.transaction(isolation="repeatable_read"):
        await somebody.execute("CREATE TEMP TABLE elsewhere AS SELECT 1")

        await deliver_all(world)
        await deliver(world)

    assert bound(world) > 50


async def test_what_a_person_changed_is_found_before_the_bound(world: World) -> None:
    later, behind, moved = await world.publish(an_event(), an_event(), an_event(), to="billing")
    await world.store.reschedule([later], due=world.after("1h"), actor=OPERATOR)
    await world.store.prioritise([behind], priority=-5, actor=OPERATOR)
    await publish(world, 60)
    first = [await deliver(world) for _ in range(6)]
    assert bound(world) > moved

    world.clock.advance("2h")
    rest = await deliver_all(world)

    assert first[0][0] == moved
    assert {later, behind} <= set(rest)


async def test_what_was_snoozed_or_given_back_is_found_before_the_bound(world: World) -> None:
    await publish(world, 60)
    early = (await world.claim("billing", total=2)).deliveries
    await deliver_all(world)
    await deliver(world)

    await world.retry(early[0], wait="0s")
    await world.store.release([early[1].lease])
    again = await deliver_all(world)

    assert bound(world) > 50
    assert sorted(again) == sorted(one.lease.delivery_id for one in early)


async def test_the_bounds_are_forgotten_after_a_while(world: World) -> None:
    """A server that came back from a copy gives numbers out again."""
    await publish(world, 60)
    await deliver_all(world)
    await deliver(world)

    world.clock.advance("61s")
    await publish(world, 1)
    await deliver(world)

    assert bound(world) == 0


class Writers:
    """Who is writing, as the server tells; something may happen while it is asked."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def ask(self, _statement: str) -> Sequence[Sequence[str]]:
        answer = [(name,) for name in self.names]
        self.meanwhile()
        return answer


async def some_bounds() -> tuple[ScanBounds, Writers]:
    bounds, writers = ScanBounds(FakeClock(), far=5, between_checks=timedelta(0)), Writers()
    await bounds.follow(writers.ask)
    bounds.reading().saw(BILLING, [1, 100])
    return bounds, writers


async def test_a_claim_that_began_to_read_before_the_proof_proves_nothing() -> None:
    """It may have missed what committed in between."""
    bounds, writers = await some_bounds()
    writers.names = ["late"]
    await bounds.follow(writers.ask)
    early = bounds.reading()

    writers.names = []
    await bounds.follow(writers.ask)
    early.saw(BILLING, [])
    before = bounds.below(BILLING)
    bounds.reading().saw(BILLING, [7, 200])

    assert before == 0
    assert bounds.below(BILLING) == 6


async def test_what_another_claim_sees_meanwhile_is_not_proven_with_the_rest() -> None:
    """A writer that is not among those may hold a number before it."""
    bounds, writers = await some_bounds()
    writers.meanwhile = lambda: bounds.reading().saw(BILLING, [300])
    await bounds.follow(writers.ask)
    await bounds.follow(writers.ask)

    bounds.reading().saw(BILLING, [])

    assert bounds.below(BILLING) == 100


async def test_a_transaction_left_open_does_not_slow_claims_down(
    world: World, somebody: asyncpg.Connection[asyncpg.Record]
) -> None:
    """At full size the last claims take at most one and a half times as long as the first."""
    took: list[float] = []
    delivered = 0
    async with somebody.transaction(isolation="repeatable_read"):
        await somebody.execute("CREATE TEMP TABLE elsewhere AS SELECT 1")
        await publish(world, DELIVERIES)
        for _ in range(DELIVERIES // BATCH):
            began = time.perf_counter()
            claimed = (await world.claim("billing", total=BATCH)).deliveries
            took.append(time.perf_counter() - began)
            await world.store.settle(
                [Settled(lease=one.lease, settlement=Delivered()) for one in claimed]
            )
            delivered += len(claimed)

    share = max(1, len(took) // 20)
    slower = statistics.median(took[-share:]) / statistics.median(took[:share])
    assert delivered == DELIVERIES
    assert bound(world) >= DELIVERIES - 3 * BATCH
    assert not IS_LONG or slower <= 1.5, f"claims became {slower:.2f} times as slow"
