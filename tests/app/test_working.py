"""Working: a worker beside other code wakes at once, shares its places, and keeps the order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    Event,
    NewEvent,
    NotFoundError,
    Query,
    Redrive,
    Retry,
    Snooze,
    Terminal,
    Transient,
)
from redrive.model.delivery import Status
from redrive.observer import Fact, Settlements
from redrive.testing import Kit

FAR_BELOW_THE_POLL = 30.0


class Arrivals:
    """A handler, and an observer that knows when its deliveries are settled."""

    def __init__(self) -> None:
        self.handled = asyncio.Event()
        self.settled = asyncio.Event()

    async def __call__(self, event: Event[Any]) -> None:
        self.handled.set()

    def notice(self, fact: Fact) -> None:
        if isinstance(fact, Settlements):
            self.settled.set()

    async def rest(self) -> None:
        """Wait until a first delivery is done, so that the worker has nothing more to do."""
        await self.settled.wait()
        self.handled.clear()


def idle_app(store: str, arrivals: Arrivals) -> Redrive:
    app = Redrive(store, poll="10m")
    app.handler("order.*", name="billing")(arrivals)
    app.observe(arrivals)
    return app


async def test_a_publish_in_the_same_process_wakes_the_worker_at_once(store: str) -> None:
    arrivals = Arrivals()
    async with idle_app(store, arrivals) as app, app.worker():
        await app.publish("order.paid")
        await arrivals.rest()

        before = time.monotonic()
        await app.publish("order.paid")
        await arrivals.handled.wait()

        assert time.monotonic() - before < FAR_BELOW_THE_POLL


async def test_a_commit_of_a_transaction_wakes_the_worker_at_once(sqlite: str) -> None:
    arrivals = Arrivals()
    async with idle_app(sqlite, arrivals) as app, app.worker():
        await app.publish("order.paid")
        await arrivals.rest()

        before = time.monotonic()
        async with app.transaction() as transaction:
            await app.publish("order.paid", within=transaction)
        await arrivals.handled.wait()

        assert time.monotonic() - before < FAR_BELOW_THE_POLL


async def test_a_publish_from_another_thread_wakes_the_worker_at_once(store: str) -> None:
    arrivals = Arrivals()
    async with idle_app(store, arrivals) as app, app.worker():
        await app.publish("order.paid")
        await arrivals.rest()

        before = time.monotonic()
        await asyncio.to_thread(app.sync.publish, "order.paid")
        await arrivals.handled.wait()

        assert time.monotonic() - before < FAR_BELOW_THE_POLL
        await asyncio.to_thread(app.sync.close)


async def test_a_replay_wakes_the_worker_at_once(store: str) -> None:
    arrivals = Arrivals()
    async with idle_app(store, arrivals) as app:
        await app.publish("order.paid", due="1h")
        await app.operations.cancel([1], by="ada")
        async with app.worker():
            await app.publish("order.paid")
            await arrivals.rest()

            before = time.monotonic()
            await app.operations.replay([1], by="ada")
            await arrivals.handled.wait()

            assert time.monotonic() - before < FAR_BELOW_THE_POLL


async def test_leaving_the_block_finishes_what_runs(store: str) -> None:
    app = Redrive(store)
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        started.set()
        await may_end.wait()

    async with app:
        async with app.worker() as worker:
            await app.publish("order.paid")
            await started.wait()
            asyncio.get_running_loop().call_soon(may_end.set)

        assert worker.tally.delivered == 1


async def test_a_worker_without_a_destination_is_refused() -> None:
    async with Redrive("memory://") as app:
        with pytest.raises(ConfigurationError, match=r"declare one with @app\.handler"):
            await app.drain()


async def test_a_slow_destination_does_not_fill_the_worker(store: str) -> None:
    app = Redrive("memory://", concurrency=4)
    may_end, mailed = asyncio.Event(), asyncio.Event()
    running = most = 0

    @app.handler("order.*")
    async def slow(event: Event[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await may_end.wait()
        running -= 1

    @app.handler("mail.*")
    async def quick(event: Event[Any]) -> None:
        mailed.set()

    async with Kit(app, store=store), app.worker() as worker:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(20)])
        await app.publish("mail.sent")

        await mailed.wait()
        may_end.set()

    assert most == 3
    assert worker.tally.delivered >= 4


async def test_a_destination_runs_no_more_at_once_than_it_allows(store: str) -> None:
    app = Redrive("memory://", concurrency=10)
    running = most = 0

    @app.handler("order.*", concurrency=2)
    async def bill(event: Event[Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10):
            await kit.clock.sleep(0)
        running -= 1

    async with Kit(app, store=store) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(10)])
        tally = await kit.drain()

    assert tally.delivered == 10
    assert most == 2


def ordered_app() -> Redrive:
    app = Redrive("memory://")
    retry = Retry(max_attempts=2, base="10s", jitter="none")
    app.handler("order.*", name="ledger", order="park", retry=retry)(print)
    return app


async def test_an_ordered_destination_gets_the_events_of_a_key_in_order(store: str) -> None:
    app = ordered_app()
    async with Kit(app, store=store) as kit:
        ledger = kit.script("ledger", [Transient("busy"), "ok", Snooze("1m")])
        for number in (1, 2, 3):
            await app.publish("order.paid", number, key="order-42")

        await kit.drain(until="1h")

        assert [one.payload for one in ledger.attempts] == [1, 1, 2, 2, 3]
        assert [one.payload for one in ledger.received] == [1, 2, 3]


async def test_other_keys_go_on_while_one_waits(store: str) -> None:
    app = ordered_app()
    async with Kit(app, store=store) as kit:
        ledger = kit.script("ledger", [Transient("busy")])
        await app.publish("order.paid", "first", key="order-1")
        await app.publish("order.paid", "second", key="order-1")
        await app.publish("order.paid", "other", key="order-2")
        await app.publish("order.paid", "none")

        await kit.drain()

        assert sorted(one.payload for one in ledger.received) == ["none", "other"]


async def test_behind_a_dead_letter_the_events_of_its_key_are_parked(store: str) -> None:
    app = ordered_app()
    async with Kit(app, store=store) as kit:
        ledger = kit.script("ledger", [Terminal("no such account")])
        for number in (1, 2, 3):
            await app.publish("order.paid", number, key="order-42")

        await kit.drain(until="1h")
        [dead] = kit.dead_letters()
        parked = await kit.operations.deliveries(Query(status=Status.PENDING))
        status = await kit.operations.status()
        await kit.operations.replay([dead.id], by="ada")
        await kit.drain(until="1h")

        assert [one.behind for one in parked.deliveries] == [dead.id, dead.id]
        assert [one.behind for one in status.destinations] == [2]
        assert [one.payload for one in ledger.received] == [1, 2, 3]


@pytest.mark.parametrize("act", ["delete", "resolve"])
async def test_a_dead_letter_out_of_the_way_frees_its_key(store: str, act: str) -> None:
    app = ordered_app()
    async with Kit(app, store=store) as kit:
        ledger = kit.script("ledger", [Terminal("no such account")])
        for number in (1, 2, 3):
            await app.publish("order.paid", number, key="order-42")
        await kit.drain()
        [dead] = kit.dead_letters()

        await getattr(kit.operations, act)([dead.id], by="ada", why="booked by hand")
        await kit.drain(until="1h")

        assert [one.payload for one in ledger.received] == [2, 3]


async def test_workers_share_the_work_without_doing_any_twice(store: str) -> None:
    app, seen = Redrive("memory://", concurrency=5), []

    @app.handler("order.*")
    async def bill(event: Event[Any]) -> None:
        seen.append(event.payload)
        await kit.clock.sleep(0)

    async with Kit(app, store=store) as kit:
        await app.publish_many([NewEvent(type="order.paid", payload=n) for n in range(100)])

        tallies = await asyncio.gather(app.drain(), app.drain(), app.drain())

        assert sorted(seen) == list(range(100))
        assert sum(one.delivered for one in tallies) == 100


@pytest.mark.parametrize(
    "choice", [{"only": ["mailing"]}, {"only": "mailing"}, {"except_": ["billing"]}]
)
async def test_a_worker_may_serve_some_destinations_alone(store: str, choice: Any) -> None:  # noqa: ANN401 - the options
    app = Redrive(store)
    received: list[str] = []
    mailed = asyncio.Event()

    @app.handler("order.*")
    async def billing(event: Event[Any]) -> None:
        received.append("billing")

    @app.handler("order.*")
    async def mailing(event: Event[Any]) -> None:
        received.append("mailing")
        mailed.set()

    async with app:
        await app.publish("order.paid")
        async with app.worker(**choice):
            await asyncio.wait_for(mailed.wait(), FAR_BELOW_THE_POLL)
        status = await app.operations.status()
        assert received == ["mailing"]
        assert {one.name: one.pending for one in status.destinations} == {
            "billing": 1,
            "mailing": 0,
        }


async def test_a_worker_for_nobody_is_refused() -> None:
    async with idle_app("memory://", Arrivals()) as app:
        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            await app.make_worker(only=["biling"])
        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            await app.make_worker(except_=["biling"])
        with pytest.raises(ConfigurationError, match="leave out fewer"):
            await app.make_worker(except_=["billing"])
