"""PostgreSQL behind PgBouncer, which pools transactions over very few connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

import pytest
from sqlalchemy import text

from redrive import Event, NewEvent, ReadModel, Redrive, Retry
from redrive.clock import SystemClock
from redrive.model.delivery import Status
from redrive.model.event import EventId
from redrive.observer import LeasesLost, Rescued
from redrive.store import Finding, Query
from redrive.stores.postgres import PostgresStore
from tests.app.recorder import Recorder
from tests.conformance import World
from tests.conformance.durability import DurabilityConformance
from tests.conformance.effects import EffectConformance, InboxConformance
from tests.conformance.fencing import FencingConformance
from tests.conformance.settling import LeaseConformance, SettlingConformance
from tests.servers.pgbouncer import bouncing
from tests.servers.postgres import Database
from tests.waiting import PATIENCE_SECONDS, eventually

CONNECTIONS = 3
clock = SystemClock()


@pytest.fixture(scope="module")
def _pooled(database: Database) -> Iterator[str]:
    with bouncing(database.url, size=CONNECTIONS) as url:
        yield url


@pytest.fixture
def pooled_url(_pooled: str, postgres_url: str) -> str:
    """The URL of an empty store, by way of the proxy."""
    there = urlsplit(_pooled)
    return urlunsplit(urlsplit(postgres_url)._replace(netloc=there.netloc))


class TestPostgresStoreBehindAProxy(
    SettlingConformance,
    FencingConformance,
    LeaseConformance,
    EffectConformance,
    InboxConformance,
    DurabilityConformance,
):
    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    async def world(self, pooled_url: str) -> AsyncIterator[World]:
        async with World.opened(
            lambda clock: PostgresStore(pooled_url, clock=clock, history=20), history=20
        ) as world:
            yield world


class Shop:
    """Several apps with a worker each, that share one store."""

    def __init__(self, url: str, count: int) -> None:
        self.done: Counter[int] = Counter()
        self.apps = [self._make(url) for _ in range(count)]
        self.recorder = Recorder()
        for app in self.apps:
            app.observe(self.recorder)
        self._news = asyncio.Event()

    def _make(self, url: str) -> Redrive:
        app = Redrive(url, lease="8s")

        @app.handler("order.*", name="billing", retry=Retry(base="10ms"), order="park")
        async def bill(event: Event[int]) -> None:
            if event.payload == 0:
                await _until_prolonged(app, event.id)
            self.done[event.payload] += 1
            self._news.set()
            if event.payload % 10 == 1 and self.done[event.payload] == 1:
                raise ConnectionError("once more")

        return app

    async def until_done(self, count: int) -> None:
        while len(self.done) < count:
            self._news.clear()
            await self._news.wait()


async def _until_prolonged(app: Redrive, event_id: EventId) -> None:
    """Return when two heartbeats after each other have prolonged the lease of a delivery."""
    query = Query(status=Status.IN_FLIGHT, event_id=event_id)

    async def lease_until() -> datetime | None:
        [claimed] = (await app.operations.deliveries(query)).deliveries
        return claimed.lease_until

    for _ in range(2):
        before = await lease_until()

        async def is_prolonged(before: datetime | None = before) -> bool:
            return await lease_until() != before

        await eventually(is_prolonged, what="the lease prolonged")


async def is_settled(app: Redrive) -> bool:
    figures = await app.operations.status()
    return not any(one.pending or one.in_flight for one in figures.destinations)


async def test_two_workers_deliver_everything_over_three_connections(pooled_url: str) -> None:
    """One delivery ends only when heartbeats got through too."""
    shop = Shop(pooled_url, 2)
    one, other = shop.apps
    async with asyncio.timeout(PATIENCE_SECONDS), one, other, one.worker(), other.worker():
        await asyncio.gather(*(one.publish("order.paid", number) for number in range(50)))
        await other.publish_many(
            [
                NewEvent(type="order.paid", payload=number, key=f"key {number % 7}")
                for number in range(50, 200)
            ]
        )
        await eventually(lambda: is_settled(one), what="everything delivered")
        page = await one.operations.deliveries(Query(status=Status.DELIVERED), limit=500)

    retried = {number for number in range(200) if number % 10 == 1}
    assert shop.done == Counter(range(200)) + Counter(retried)
    assert sorted(each.attempts for each in page.deliveries) == [1] * 180 + [2] * 20
    assert [fact for fact in shop.recorder.facts if isinstance(fact, LeasesLost | Rescued)] == []


async def test_an_idle_worker_finds_new_work_by_its_poll(pooled_url: str) -> None:
    shop = Shop(pooled_url, 2)
    worker, publisher = shop.apps
    async with asyncio.timeout(PATIENCE_SECONDS), worker, publisher, worker.worker():
        for number in range(2, 6):
            await publisher.publish("order.paid", number)
            await shop.until_done(number - 1)


async def test_nothing_is_left_in_the_sessions_that_others_share(
    pooled_url: str, database: Database
) -> None:
    shop = Shop(pooled_url, 1)
    [app] = shop.apps
    async with asyncio.timeout(PATIENCE_SECONDS), app, app.worker():
        await app.publish("order.paid", 2)
        await shop.until_done(1)

    listening = database.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")
    locks = database.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert (listening, locks) == (0, 0)
    assert any("proxy that pools" in finding.what for finding in await _examine(pooled_url))


async def _examine(url: str) -> Sequence[Finding]:
    async with Redrive(url) as app:
        return await app.operations.examine()


async def test_sessions_of_projections_run_the_statements_they_are_given(pooled_url: str) -> None:
    """Nothing can be prepared there for long; a second time must not run another statement."""
    app, seen = Redrive(pooled_url), list[object]()

    @app.projection("order.*", name="orders")
    async def look(event: Event[int], model: ReadModel) -> None:
        for statement in ("SELECT 1", "SELECT 2", "SELECT 1"):
            seen.append(await model.session.scalar(text(statement)))

    async with app:
        await app.publish_many([NewEvent(type="order.placed", payload=n) for n in range(2)])
        await app.drain()

    assert seen == [1, 2, 1] * 2
