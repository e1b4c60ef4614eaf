"""The recorder and the housekeeper keep trends: written every ten seconds, rolled up in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from redrive.clock import SystemRng
from redrive.errors import StoreUnavailableError
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt
from redrive.model.trend import Measure
from redrive.observer import DeadLettered, Observers, Settlements
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import InlineExecutor
from redrive.worker.maintenance import Housekeeper, Upkeep
from redrive.worker.recorder import Recorder
from tests.conformance.world import BILLING, World, a_fault, an_event
from tests.unit.policies.leases import leased

_HOUR = timedelta(hours=1)


class Desk:
    """A recorder at a store that may be out of reach."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Flaky(self.clock)
        self.recorder = Recorder(self.store, self.clock, SystemRng())

    def settle(self, *, took: float = 0.02) -> None:
        """Tell of three tries, one of each kind."""
        one, fault = leased(), a_fault()
        retry = RetryAt(when=self.clock.now(), fault=fault)
        failed = Failed(reason=FailureReason.TERMINAL, fault=fault)
        settled = tuple((one, each) for each in (Delivered(), retry, failed))
        self.recorder.notice(Settlements(worker="w", settled=settled, took=(took,) * 3))
        self.recorder.notice(
            DeadLettered(
                delivery_id=one.lease.delivery_id,
                event_id=one.event.id,
                event_type=one.event.type,
                destination=one.destination,
                tenant=None,
                reason=failed.reason,
                fault=fault,
                attempts=1,
            )
        )

    async def kept(self) -> Measure:
        name = leased().destination
        total = Measure()
        for point in (await self.store.trends([name], back=_HOUR)).points[name]:
            total += point.measure
        return total

    async def pass_time(self, span: str) -> None:
        self.clock.advance(span)
        for _ in range(10):
            await self.clock.sleep(0)


class Flaky(MemoryStore):
    is_away = False
    writes = 0

    async def add_trends(self, measures: Mapping[str, Measure]) -> None:
        if self.is_away:
            raise StoreUnavailableError("gone")
        self.writes += 1
        await super().add_trends(measures)


async def test_what_was_settled_is_written_once_every_ten_seconds() -> None:
    desk = Desk()
    running = asyncio.create_task(desk.recorder.run())
    await desk.pass_time("1ms")
    for _ in range(5):
        desk.settle()
    await desk.pass_time("9s")
    assert desk.store.writes == 0

    await desk.pass_time("1s")
    await desk.pass_time("1m")

    kept = await desk.kept()
    assert (kept.delivered, kept.retried, kept.failed, desk.store.writes) == (5, 5, 5, 1)
    assert kept.latencies == (0, 0, 15, *(0,) * 9)
    running.cancel()


async def test_what_could_not_be_written_is_written_later() -> None:
    desk = Desk()
    running = asyncio.create_task(desk.recorder.run())
    await desk.pass_time("1ms")
    desk.store.is_away = True
    desk.settle()
    await desk.pass_time("10s")
    desk.settle(took=500.0)
    with pytest.raises(StoreUnavailableError):
        await desk.recorder.write()
    desk.store.is_away = False

    await desk.pass_time("10s")

    kept = await desk.kept()
    assert (kept.delivered, kept.retried, kept.failed) == (2, 2, 2)
    assert (kept.latencies[2], kept.latencies[-1]) == (3, 3)
    running.cancel()


async def test_housekeeping_keeps_how_late_the_oldest_due_is_and_rolls_up() -> None:
    async with World.opened(MemoryStore, history=20) as world:
        clock, store = world.clock, world.store
        keeper = Housekeeper(
            *(store, "keeper", Upkeep()),
            clock=clock,
            executor=InlineExecutor(),
            observer=Observers(),
        )
        await world.store.register([BILLING])
        await world.publish(an_event())
        for _ in range(9):
            clock.advance("1m")
            await keeper.tidy()

        kept = await store.trends(["billing"], back=_HOUR)
        assert [one.measure.overdue for one in kept.points["billing"]] == [
            *range(60, 600, 60),
        ]

        await world.settle(await world.claim_one(), Delivered())
        clock.advance("4h")
        await keeper.tidy()

        kept = await store.trends(["billing"], back=5 * _HOUR)
        assert max(one.measure.overdue for one in kept.points["billing"]) == 540
        assert len(kept.points["billing"]) <= 2
