"""When handlers bring everything to a halt: the event loop stands still, or no place is left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec
import pytest

from redrive.claiming.allowance import Places
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.outcome import Outcome
from redrive.observer import Observers
from redrive.pipeline.deliver import Carrier, Load
from redrive.policies.terms import Terms
from redrive.store import Serving
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from redrive.transport import Endpoint
from redrive.worker.heartbeat import Heartbeat


class Endless:
    """A transport that never answers, and goes on when its time is up."""

    batch = 1

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        raise AssertionError


def an_endpoint(name: str = "billing", *, concurrency: int | None = None) -> Endpoint:
    return Endpoint(
        destination=Destination(name=name, patterns=("*",)),
        terms=Terms(timeout="30s", concurrency=concurrency),
        transport=Endless(),
    )


class Halted:
    """A carrier whose one load never ends; time-out 30 s, grace 10 s."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.carrier = Carrier(
            worker="w",
            clock=self.clock,
            grace=timedelta(seconds=10),
            observer=Observers(),
            on_progress=lambda: None,
        )
        now = self.clock.now()
        leased = Leased(
            lease=Lease(DeliveryId(1), 1),
            destination="billing",
            event=Event(
                id=EventId("1"),
                type="order.paid",
                payload=msgspec.Raw(b"null"),
                published_at=now,
                occurred_at=now,
            ),
            attempt=1,
            kind=Kind.FIRST,
            claimed_at=now,
            enqueued_at=now,
        )
        self.load = Load(an_endpoint(), [leased], claimed=self.clock.monotonic())

    async def begin(self) -> None:
        self.carrier.start([self.load])
        await self.rest()

    async def rest(self) -> None:
        for _ in range(20):
            await self.clock.sleep(0)

    async def abandon(self) -> None:
        """Let its time-out and the grace pass under the carrier's eyes."""
        await self.begin()
        watch = asyncio.create_task(self.carrier.watch())
        for _ in range(2):
            await self.rest()
            self.clock.advance("30s")
        await self.rest()
        watch.cancel()
        assert self.carrier.stuck() == {"billing": 1}

    def wedged_after(self, silence: str) -> bool:
        """Tell whether this long after the last tick the loop counts as blocked."""
        last_tick = self.clock.monotonic()
        self.clock.advance(silence)
        return self.carrier.wedged_by(last_tick) is not None


@pytest.fixture
async def halted() -> AsyncIterator[Halted]:
    """A carrier that is ended after the test, whatever it carries."""
    made = Halted()
    yield made
    await made.carrier.stop()


@pytest.mark.parametrize(("silence", "is_wedged"), [("39s", False), ("40s", True)])
async def test_a_loop_blocked_beyond_time_out_and_grace_is_wedged(
    halted: Halted, silence: str, *, is_wedged: bool
) -> None:
    await halted.begin()

    assert halted.wedged_after(silence) is is_wedged


@pytest.mark.parametrize(("silence", "is_wedged"), [("39s", False), ("40s", True)])
async def test_a_loop_blocked_before_a_load_could_start_is_wedged(
    halted: Halted, silence: str, *, is_wedged: bool
) -> None:
    halted.carrier.start([halted.load])

    assert halted.wedged_after(silence) is is_wedged


async def test_a_load_that_never_starts_is_not_leased_for_ever(halted: Halted) -> None:
    halted.carrier.start([halted.load])

    before = halted.carrier.leases()
    halted.clock.advance("40s")

    assert len(before) == 1
    assert halted.carrier.leases() == []


@pytest.mark.parametrize(("silence", "is_wedged"), [("39s", False), ("40s", True)])
async def test_a_handler_left_behind_that_blocks_the_loop_later_is_found_too(
    halted: Halted, silence: str, *, is_wedged: bool
) -> None:
    await halted.abandon()

    assert halted.wedged_after(silence) is is_wedged


@pytest.mark.parametrize("was_frozen", [True, False], ids=["frozen", "blocked"])
async def test_only_a_loop_that_does_not_tick_again_ends_the_process(
    halted: Halted, *, was_frozen: bool
) -> None:
    store, stopped, ends = MemoryStore(halted.clock), asyncio.Event(), list[str]()

    async def opened() -> MemoryStore:
        await store.open()
        return store

    heartbeat = Heartbeat(
        worker="w",
        open_store=opened,
        carrier=halted.carrier,
        serving=lambda: Serving(("billing",), ("default",)),
        lease=timedelta(seconds=6),
        clock=halted.clock,
        observer=Observers(),
        on_missed=lambda: None,
        on_wedged=lambda: ends.append("wedged"),
    )
    await halted.begin()
    beating = asyncio.create_task(heartbeat.run(stopped))
    await halted.rest()

    halted.clock.advance("2m")  # of this nobody here has noticed anything
    await halted.rest()
    ticking = asyncio.create_task(heartbeat.tick() if was_frozen else halted.rest())
    for _ in range(5):
        halted.clock.advance("1s")
        await halted.rest()

    assert bool(ends) is not was_frozen
    stopped.set()
    ticking.cancel()
    await asyncio.gather(beating, ticking, return_exceptions=True)


@pytest.mark.parametrize(
    ("stuck", "expected"),
    [
        ({}, False),
        ({"billing": 1}, False),
        ({"billing": 7}, True),
        ({"mailing": 1}, False),
        ({"mailing": 2}, True),
    ],
)
def test_stuck_handlers_starve_a_destination_once_its_last_place_is_gone(
    stuck: dict[str, int], *, expected: bool
) -> None:
    endpoints = [an_endpoint("billing"), an_endpoint("mailing", concurrency=2)]

    served = {one.destination.name: one for one in endpoints}
    assert Places(concurrency=8).starves(served, stuck) is expected
