"""Faults of the engine itself: a worker that no longer does its duties must not look healthy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

import pytest

from redrive import DeadLettered, Event, Redrive, Retry
from redrive.app.declaration import Ports
from redrive.clock import SystemClock
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Delivery, Lease
from redrive.observer import Observers
from redrive.pipeline.deliver import Carrier
from redrive.store import Blame, Serving, Settled
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.worker.heartbeat import Heartbeat


class Broken(MemoryStore):
    """A store with a bug in a duty and in the first heartbeat."""

    beats = 0

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        raise ZeroDivisionError

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        self.beats += 1
        if self.beats == 1:
            raise ZeroDivisionError
        return ()


async def test_a_worker_whose_duties_break_ends_and_says_why() -> None:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(print)

    with app.rewired(Ports(), lambda: Broken(FakeClock())):
        worker = await app.make_worker()
        with pytest.raises(ZeroDivisionError):
            await worker.run()


class AwayAtTheEnd(MemoryStore):
    """A store that is out of reach for a moment when a worker wants to say its last words."""

    misses = 0

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        self.misses += 1
        if self.misses == 1:
            raise StoreUnavailableError("gone for a moment")
        return await super().settle(batch)


async def test_last_words_are_said_again_when_the_store_is_away_for_a_moment() -> None:
    """What was delivered would be delivered again, and its worker would pass for crashed."""
    app = Redrive("memory://", grace="0s")
    store = AwayAtTheEnd(SystemClock())
    begun = asyncio.Event()

    @app.handler("order.*")
    async def bill(_: object) -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    with app.rewired(Ports(), lambda: store):
        await app.publish("order.paid")
        async with app.worker() as worker:
            await begun.wait()
            worker.stop()
        figures = await store.figures()

    assert store.misses == 2
    assert figures.destinations[0].delivered == 1
    assert figures.workers == ()


class LosesAnswers(MemoryStore):
    """Settles, and then cannot say so; the first time for each batch."""

    settled = 0

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        refused = await super().settle(batch)
        self.settled += 1
        if self.settled == 1:
            raise StoreUnavailableError("the answer was lost")
        return refused


async def test_a_settlement_whose_answer_was_lost_is_told_all_the_same() -> None:
    app = Redrive("memory://")
    store = LosesAnswers(SystemClock())
    dead: list[str] = []

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=1))
    async def bill(event: Event[str]) -> None:
        if event.payload != "fine":
            raise LookupError(event.payload)

    @app.on_failed
    def tell(letter: DeadLettered) -> None:
        dead.append(letter.fault.message)

    with app.rewired(Ports(), lambda: store):
        await app.publish("order.paid", "fine")
        await app.publish("order.paid", "no customer")
        tally = await app.drain()
        figures = await store.figures()

    assert (tally.delivered, tally.failed, tally.refused) == (1, 1, 0)
    assert figures.refused_settlements == 0
    assert len(dead) == 1


async def test_a_heartbeat_that_stumbles_goes_on() -> None:
    clock, stopped = FakeClock(), asyncio.Event()
    store, observer = Broken(clock), Observers()

    async def open_store() -> Broken:
        return store

    heartbeat = Heartbeat(
        worker="w",
        open_store=open_store,
        carrier=Carrier(
            worker="w",
            clock=clock,
            grace=timedelta(0),
            observer=observer,
            on_progress=lambda: None,
        ),
        serving=lambda: Serving((), ()),
        lease=timedelta(seconds=4),
        clock=clock,
        observer=observer,
        on_missed=lambda: None,
        on_wedged=lambda: None,
    )
    beating = asyncio.create_task(heartbeat.run(stopped))
    for _ in range(3):
        for _ in range(20):
            await clock.sleep(0)
        clock.advance("1s")
    stopped.set()
    await beating

    assert store.beats == 3
