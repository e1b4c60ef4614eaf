"""A network that spoils connections to PostgreSQL: nothing hangs, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from redrive import Event, Receipt, Redrive, StoreError
from redrive.model.delivery import Status
from redrive.observer import StoreBack, StoreLost
from redrive.store import Query
from redrive.stores.postgres import PostgresStore, core, read_address
from redrive.stores.postgres.pool import Link
from tests.app.recorder import Recorder
from tests.faults.apps import clock
from tests.servers.proxy import Proxy, proxying
from tests.waiting import PATIENCE_SECONDS, eventually, spend

MANY = 40


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(postgres_url)
    assert parts.hostname is not None
    async with proxying(parts.hostname, parts.port or 5432) as proxy:
        yield proxy


class Shop:
    """An app that reaches its store through the proxy, and another that reaches it directly."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        parts = urlsplit(url)
        there = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}")
        self.app = Redrive(urlunsplit(there), lease="6s", poll="100ms", grace="1s")
        self.direct = Redrive(url)
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.done: Counter[int] = Counter()
        self._news = asyncio.Event()

        @self.app.handler("order.*", name="billing")
        async def bill(event: Event[int]) -> None:
            self.done[event.payload] += 1
            self._news.set()

    async def publish(self, number: int) -> Receipt:
        """Publish until it is known to be stored, as a careful caller does."""
        while True:
            try:
                return await self.app.publish(
                    "order.paid", number, idempotency_key=f"order {number}"
                )
            except StoreError:
                await spend(0.05)

    async def until_done(self, count: int) -> None:
        while len(self.done) < count:
            self._news.clear()
            await self._news.wait()

    async def until_settled(self) -> None:
        await eventually(self._is_settled, what="everything settled")

    async def _is_settled(self) -> bool:
        figures = await self.direct.operations.status()
        return all(one.pending == one.in_flight == 0 for one in figures.destinations)


Fault = Callable[[Proxy], Awaitable[None]]


async def _slow(proxy: Proxy) -> None:
    proxy.delay(0.03)


async def _narrow(proxy: Proxy) -> None:
    proxy.throttle(30_000)


async def _reset(proxy: Proxy) -> None:
    proxy.reset()


async def _half_closed(proxy: Proxy) -> None:
    proxy.half_close()


async def _silent_for_a_moment(proxy: Proxy) -> None:
    proxy.stall()
    asyncio.get_running_loop().call_later(1, proxy.resume)


async def _old_lines_dead(proxy: Proxy) -> None:
    proxy.freeze()


def _cut_after(count: int) -> Fault:
    async def cut(proxy: Proxy) -> None:
        proxy.cut_after(count)

    return cut


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(_slow, id="slow"),
        pytest.param(_narrow, id="narrow"),
        pytest.param(_reset, id="reset"),
        pytest.param(_half_closed, id="half-closed"),
        pytest.param(_silent_for_a_moment, id="silent for a moment"),
        pytest.param(_old_lines_dead, id="old lines dead"),
        *(pytest.param(_cut_after(count), id=f"cut after {count}") for count in (1, 300, 3000)),
    ],
)
async def test_nothing_is_lost_or_stored_twice_over_a_bad_network(
    fault: Fault, postgres_url: str, proxy: Proxy
) -> None:
    shop = Shop(postgres_url, proxy)
    async with asyncio.timeout(PATIENCE_SECONDS), shop.app, shop.direct:
        async with shop.app.worker():
            await asyncio.gather(*(shop.publish(number) for number in range(MANY)))
            await shop.until_done(5)

            await fault(proxy)
            receipts = await asyncio.gather(
                *(shop.publish(number) for number in range(MANY, 2 * MANY))
            )
            proxy.resume()
            await shop.until_settled()

        figures = await shop.direct.operations.status()
        page = await shop.direct.operations.deliveries(
            Query(status=Status.DELIVERED), limit=10 * MANY
        )
    assert len({one.event_id for one in receipts}) == MANY
    assert figures.events == len(page.deliveries) == 2 * MANY
    assert [one.crashes for one in page.deliveries] == [0] * 2 * MANY
    assert sorted(shop.done) == list(range(2 * MANY))


async def test_a_line_that_goes_silent_while_a_store_is_opened_ends_that(
    postgres_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_ANSWER_SECONDS", 5.0)
    schema = read_address(postgres_url).schema
    async with Redrive(postgres_url):
        pass
    server = await asyncpg.connect(read_address(postgres_url).dsn)
    await server.execute(f"BEGIN; LOCK TABLE {schema}.schema")
    store = PostgresStore(Shop(postgres_url, proxy).app.settings.store, clock=clock)

    async with asyncio.timeout(PATIENCE_SECONDS):
        opening = asyncio.create_task(store.open())
        await eventually(
            lambda: server.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"),
            what="the store waits for an answer",
        )
        proxy.freeze()

        with pytest.raises(StoreError):
            await opening
    await server.close()


async def test_a_worker_is_not_hung_by_a_line_that_has_gone_silent(
    postgres_url: str, proxy: Proxy
) -> None:
    """Whoever it carried is given to another worker, and its late settlement is refused."""
    shop = Shop(postgres_url, proxy)
    rival = Redrive(postgres_url, lease="8s", poll="100ms")
    begun, finish = asyncio.Event(), asyncio.Event()

    @shop.app.handler("slow.*")
    async def slow(event: Event[int]) -> None:
        begun.set()
        await finish.wait()

    taken: list[int] = []

    @rival.handler("slow.*", name="slow")
    async def take_over(event: Event[int]) -> None:
        taken.append(event.payload)

    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        shop.app,
        shop.direct,
        rival,
        shop.app.worker() as worker,
    ):
        await shop.direct.publish("slow.one", 1)
        await begun.wait()

        proxy.stall()
        async with rival.worker():
            lost = await shop.recorder.wait_for(StoreLost)
            await shop.until_settled()
        finish.set()
        proxy.resume()
        await shop.recorder.wait_for(StoreBack)
        await eventually(lambda: worker.tally.refused, what="the late settlement refused")

    assert taken == [1]
    assert worker.tally.refused == 1
    assert "did not answer in time" in lost.error


async def test_whoever_falls_silent_in_a_transaction_does_not_hold_up_the_others_for_long(
    postgres_url: str, proxy: Proxy
) -> None:
    """A frozen process or a dead line would keep its locks for as long as TCP cares to wait."""
    shop = Shop(postgres_url, proxy)
    has_lock = asyncio.Event()

    async def fall_silent(link: Link, _: datetime) -> None:
        await link.fetch("SELECT * FROM redrive.gates FOR UPDATE")
        has_lock.set()
        proxy.freeze()
        await link.fetch("SELECT 1")

    async with asyncio.timeout(PATIENCE_SECONDS), shop.app, shop.direct:
        silent = PostgresStore(shop.app.settings.store, clock=clock)
        await silent.open()
        waiting = asyncio.ensure_future(silent._write(fall_silent))
        await has_lock.wait()
        begun = clock.monotonic()

        await shop.direct.operations.pause("billing", by="ann", why="to see whether it can be")

        waited = clock.monotonic() - begun
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await silent.close()

    # The server gives up on it after some seconds; TCP would wait for minutes.
    assert 1 < waited < PATIENCE_SECONDS
