"""When a heartbeat is sent, and when there is nothing to add to what the store knows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from redrive.model.delivery import DeliveryId, Lease
from redrive.observer import Observers
from redrive.pipeline.deliver import Carrier
from redrive.store import Serving
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.worker.heartbeat import Heartbeat

LEASE = timedelta(seconds=20)
observers = Observers()


class Listening(MemoryStore):
    """A store that counts heartbeats."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.beats = 0

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        self.beats += 1
        return await super().heartbeat(worker, leases, lease=lease, serving=serving)


class Burdened(Carrier):
    """A carrier that holds what the test says."""

    held: tuple[Lease, ...] = ()

    def leases(self, *, with_effects: bool = True) -> list[Lease]:
        return [*super().leases(with_effects=with_effects), *self.held]


class Beating:
    """A heartbeat at work on a fake clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Listening(self.clock)
        self.heard_at = -math.inf
        self.carrier = Burdened(
            worker="worker-1",
            clock=self.clock,
            grace=LEASE,
            observer=observers,
            on_progress=lambda: None,
        )

    async def open_store(self) -> Listening:
        await self.store.open()
        return self.store

    async def beats_after(self, seconds: float) -> int:
        """Return how many beats there are in so many seconds."""
        before = self.store.beats
        self.clock.advance(timedelta(seconds=seconds))
        for _ in range(10):
            await self.clock.sleep(0)
        return self.store.beats - before

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        heartbeat = Heartbeat(
            worker="worker-1",
            open_store=self.open_store,
            carrier=self.carrier,
            serving=lambda: Serving(("billing",), ("default",)),
            lease=LEASE,
            clock=self.clock,
            observer=observers,
            on_missed=lambda: None,
            on_wedged=lambda: None,
            noted_at=lambda: self.heard_at,
        )
        stopped = asyncio.Event()
        run = asyncio.ensure_future(heartbeat.run(stopped))
        try:
            await self.beats_after(0)
            yield
        finally:
            stopped.set()
            await run


async def test_an_idle_worker_that_nobody_hears_of_beats_four_times_in_a_lease() -> None:
    beating = Beating()

    async with beating.running():
        beats = [await beating.beats_after(5) for _ in range(4)]

    assert beats == [1, 1, 1, 1]


async def test_a_worker_that_was_just_heard_of_has_nothing_to_add() -> None:
    beating = Beating()

    async with beating.running():
        beating.heard_at = 4.0
        quiet = await beating.beats_after(5)
        again = await beating.beats_after(5)

    assert (quiet, again) == (0, 1)


async def test_the_first_beat_tells_what_it_serves_whoever_has_heard_of_it() -> None:
    beating = Beating()
    beating.heard_at = 0.0

    async with beating.running():
        assert beating.store.beats == 1


async def test_a_worker_with_leases_beats_although_it_was_heard_of() -> None:
    beating = Beating()

    async with beating.running():
        beating.heard_at = 4.0
        beating.carrier.held = (Lease(DeliveryId(1), 1),)

        assert await beating.beats_after(5) == 1
