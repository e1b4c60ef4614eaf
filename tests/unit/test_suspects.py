"""Suspects: they run alone, from an empty worker until they are settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from redrive import Event, Redrive
from redrive.app.declaration import Ports
from redrive.model.delivery import Lease
from redrive.store import Claim, ClaimRequest, Settled
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from tests.conformance.world import World, an_event


class Watched(MemoryStore):
    """A store that takes its time to settle, and notes what was in flight at each claim alone."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.in_flight: list[int] = []

    async def claim(self, request: ClaimRequest) -> Claim:
        if request.alone:
            figures = await self.figures()
            self.in_flight.append(sum(one.in_flight for one in figures.destinations))
        return await super().claim(request)

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        await rest(10)
        return await super().settle(batch)


class Contended(Watched):
    """A store where another worker is always quicker to take a suspect."""

    async def claim(self, request: ClaimRequest) -> Claim:
        if request.alone:
            await super().claim(msgspec.structs.replace(request, worker="quicker"))
        return await super().claim(request)


class Handling:
    """A handler that notes what it begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.may_end = asyncio.Event()

    async def __call__(self, event: Event[object]) -> None:
        self.begun.append(event.payload)
        await self.may_end.wait()


@asynccontextmanager
async def a_worker(world: World, handling: Handling) -> AsyncIterator[None]:
    app = Redrive("memory://")
    app.handler("order.*", name="billing")(handling)
    with app.rewired(Ports(clock=world.clock), lambda: world.store):
        async with app.worker():
            yield


async def rest(turns: int = 500) -> None:
    for _ in range(turns):
        await FakeClock().sleep(0)


async def test_nothing_is_claimed_beside_a_suspect() -> None:
    async with World.opened(Watched, history=20) as world:
        handling = Handling()
        await world.suspect(an_event("suspect"))

        async with a_worker(world, handling):
            await rest()
            await world.publish(an_event("innocent"))
            world.clock.advance("1s")
            await rest()
            beside = list(handling.begun)
            handling.may_end.set()
            await rest()

        assert beside == ["suspect"]
        assert handling.begun == ["suspect", "innocent"]


async def test_a_suspect_is_claimed_only_when_all_before_it_is_settled() -> None:
    async with World.opened(Watched, history=20) as world:
        assert isinstance(world.store, Watched)
        handling = Handling()
        handling.may_end.set()
        await world.suspect(an_event("first"))
        await world.suspect(an_event("second"))
        await world.publish(an_event("innocent"))
        world.store.in_flight.clear()

        async with a_worker(world, handling):
            await rest()

        assert handling.begun == ["innocent", "first", "second"]
        assert set(world.store.in_flight) == {0}


async def test_a_suspect_that_another_worker_took_does_not_delay_the_rest() -> None:
    async with World.opened(Contended, history=20) as world:
        handling = Handling()
        handling.may_end.set()
        await world.suspect(an_event("suspect"))
        app = Redrive("memory://", concurrency=1)
        app.handler("order.*", name="billing")(handling)
        await world.publish(an_event("first"), an_event("second"))

        with app.rewired(Ports(clock=world.clock), lambda: world.store):
            await app.drain()

        assert handling.begun == ["first", "second"]
