"""The caretaker: takes back what dead workers held, and blames nobody for an outage or a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from redrive.clock import Clock
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.retention import Retention
from redrive.observer import Observers
from redrive.store import Advance, Blame, Pruned, ShedBlame
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.testing.fakes import InlineExecutor
from redrive.worker.maintenance import Caretaker, Housekeeper, Upkeep, rescue
from tests.conformance.world import World, an_event

LEASE = timedelta(seconds=30)
observers = Observers()


def a_store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


class Silent(MemoryStore):
    """A store that has fallen silent in one call, until it answers after all."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.answers = asyncio.Event()
        self.answered = 0

    async def _answer(self) -> None:
        await self.answers.wait()
        self.answered += 1


class SilentInHousekeeping(Silent):
    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        await self._answer()
        return await super().prune(retention, limit=limit)


class SilentInReplays(Silent):
    async def advance_replays(self) -> Advance:
        await self._answer()
        return await super().advance_replays()


class Slow(MemoryStore):
    """A store that takes its time for each call of a round, though not for long."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._hands = clock

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        self._hands.advance("6s")
        return await super().expire(blame=blame, limit=limit)

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        self._hands.advance("6s")
        return await super().shed(blame=blame, limit=limit)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with World.opened(a_store, history=20) as world:
        yield world


class SetBack:
    """A clock that is set back whenever somebody looks at it; time passes all the same."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._shows = clock, clock.now()
        self.monotonic, self.sleep = clock.monotonic, clock.sleep

    def now(self) -> datetime:
        return self._shows


class Running:
    """A caretaker at work on a fake clock."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.caretaker = Caretaker(
            store=world.store,
            worker="caretaker",
            lease=LEASE,
            serving=dict,
            clock=clock,
            executor=InlineExecutor(),
            observer=observers,
            on_store_lost=lambda _: self.caretaker.hold_back(),
            housekeeper=Housekeeper(
                world.store,
                "caretaker",
                Upkeep(),
                clock=world.clock,
                executor=InlineExecutor(),
                observer=observers,
            ),
        )

    async def pass_time(self, seconds: int) -> None:
        """Let time pass a second at a time, so that no gap is seen."""
        for _ in range(seconds):
            self.world.clock.advance("1s")
            await self.rest()

    async def rest(self) -> None:
        for _ in range(20):
            await self.world.clock.sleep(0)

    async def crashes(self, delivery_id: DeliveryId) -> int | None:
        """Return the crashes counted so far; nothing while it is still in flight."""
        delivery = await self.world.show(delivery_id)
        return None if delivery.status is Status.IN_FLIGHT else delivery.crashes


@asynccontextmanager
async def a_caretaker(world: World, clock: Clock | None = None) -> AsyncIterator[Running]:
    running = Running(world, clock or world.clock)
    task = asyncio.create_task(running.caretaker.run())
    await running.rest()
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_worker_does_not_count_its_own_lost_lease_as_a_crash() -> None:
    async with a_world() as world:
        mine, other = await world.publish(an_event(), an_event())
        await world.claim(total=1, worker="me")
        await world.claim(total=1, worker="other")
        world.clock.advance(LEASE)

        assert await rescue(world.store, observers, rescuer="me", lease=LEASE) == 2

        assert (await world.show(mine)).crashes == 0
        assert (await world.show(other)).crashes == 1


async def test_a_worker_that_lost_the_answer_to_its_claim_is_not_blamed() -> None:
    """It beats, and does not know what it was given; only its next beat shows that it lives."""
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="never heard")
        await running.pass_time(29)
        await world.store.heartbeat("never heard", [], lease=LEASE)

        await running.pass_time(6)
        before = await running.crashes(delivery)
        await world.store.heartbeat("never heard", [], lease=LEASE)
        await running.pass_time(2)

        assert before is None
        assert await running.crashes(delivery) == 0


async def test_a_worker_that_crashes_after_a_claim_is_blamed_for_what_it_ran() -> None:
    """A claim shows that it lived then, and no more than that."""
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")
        await running.pass_time(5)
        await world.claim(worker="dead")

        await running.pass_time(31)

        assert await running.crashes(delivery) == 1


async def test_a_worker_that_stopped_after_a_long_outage_is_not_blamed() -> None:
    """Its last words came after its leases had ended, so they changed nothing."""
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        leased = await world.claim_one(worker="stopped")
        await running.pass_time(28)
        running.caretaker.hold_back()
        await running.pass_time(6)
        refused = await world.store.release([leased.lease])
        await world.store.retire("stopped")

        await running.pass_time(12)

        assert len(refused) == 1
        assert await running.crashes(delivery) == 0


async def test_a_dead_worker_is_found_as_soon_as_its_lease_has_run_out() -> None:
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")

        await running.pass_time(29)
        before = await running.crashes(delivery)
        await running.pass_time(2)

        assert before is None
        assert await running.crashes(delivery) == 1


async def test_after_an_outage_owners_are_heard_before_anything_is_rescued() -> None:
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="out of touch")
        await running.pass_time(28)
        running.caretaker.hold_back()
        await running.pass_time(6)

        before = await running.crashes(delivery)
        await world.store.heartbeat("out of touch", [], lease=LEASE)
        await running.pass_time(8)

        assert before is None
        assert await running.crashes(delivery) == 0


async def test_after_the_machine_slept_owners_are_heard_before_anything_is_rescued() -> None:
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="asleep as well")

        world.clock.advance("1h")
        await running.rest()
        before = await running.crashes(delivery)
        await world.store.heartbeat("asleep as well", [], lease=LEASE)
        await running.pass_time(12)

        assert before is None
        assert await running.crashes(delivery) == 0


async def test_after_a_freeze_owners_are_heard_even_if_the_clock_was_set_back_meanwhile() -> None:
    async with a_world() as world, a_caretaker(world, SetBack(world.clock)) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="frozen as well")
        await running.pass_time(12)

        world.clock.advance("1h")
        await running.rest()
        before = await running.crashes(delivery)
        await world.store.heartbeat("frozen as well", [], lease=LEASE)
        await running.pass_time(12)

        assert before is None
        assert await running.crashes(delivery) == 0


async def test_a_newcomer_hears_owners_before_it_rescues_anything() -> None:
    """It may have come just after an outage, of which it knows nothing."""
    async with a_world() as world:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="out of touch")
        world.clock.advance(LEASE)
        async with a_caretaker(world) as running:
            await running.pass_time(5)
            before = await running.crashes(delivery)
            await world.store.heartbeat("out of touch", (), lease=LEASE)
            await running.pass_time(7)

            assert before is None
            assert await running.crashes(delivery) == 0


async def test_an_outage_does_not_keep_the_dead_from_being_found() -> None:
    async with a_world() as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")

        world.clock.advance("1h")
        running.caretaker.hold_back()
        await running.pass_time(12)

        assert await running.crashes(delivery) == 1


async def test_long_rounds_do_not_keep_the_dead_from_being_found() -> None:
    async with World.opened(Slow, history=20) as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")

        await running.pass_time(10)

        assert await running.crashes(delivery) == 1


@pytest.mark.parametrize("kind", [SilentInHousekeeping, SilentInReplays])
async def test_the_dead_are_found_while_another_chore_waits_for_an_answer(
    kind: type[Silent],
) -> None:
    async with World.opened(kind, history=20) as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")

        await running.pass_time(31)

        assert await running.crashes(delivery) == 1
        assert isinstance(world.store, Silent)
        world.store.answers.set()


async def test_what_has_begun_comes_to_its_end_before_the_caretaker_does() -> None:
    async with World.opened(SilentInHousekeeping, history=20) as world:
        assert isinstance(world.store, Silent)
        running = Running(world, world.clock)
        task = asyncio.create_task(running.caretaker.run())
        await running.rest()

        task.cancel()
        await running.rest()
        was_waiting = not task.done()
        world.store.answers.set()
        await asyncio.gather(task, return_exceptions=True)

        assert was_waiting
        assert world.store.answered == 1


async def test_housekeeping_that_always_fails_keeps_nobody_from_being_rescued() -> None:
    """Whoever loses the store holds rescue back, so it must not do so all the time."""

    class Broken(MemoryStore):
        async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
            raise StoreUnavailableError("This user may not do that.")

    async with World.opened(Broken, history=20) as world, a_caretaker(world) as running:
        (delivery,) = await world.publish(an_event())
        await world.claim(worker="dead")

        await running.pass_time(60)

        assert await running.crashes(delivery) == 1
