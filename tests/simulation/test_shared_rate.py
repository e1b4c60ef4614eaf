"""A rate that many destinations share, from outside: an app with a worker, in virtual time."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from redrive import Event, NewEvent, Rate, Redrive, SharedRate
from redrive.app.declaration import Ports
from redrive.store import Claim, ClaimRequest
from redrive.stores.memory import MemoryStore
from redrive.testing.fakes import CountingIds, SeededRng
from tests.simulation.loop import SimulationLoop, Strand
from tests.simulation.ports import HostClock, StrandExecutor

MANY = 45
SHARING = 40
SECONDS = 30
RATE = Rate(per_second=8.0, burst=2.0)


class Distant(MemoryStore):
    """A store that takes its time, as one behind a network; it counts whom it was asked for."""

    def __init__(self, clock: HostClock, loop: SimulationLoop) -> None:
        super().__init__(clock)
        self._loop = loop
        self.asked = 0

    async def claim(self, request: ClaimRequest) -> Claim:
        self.asked += len(request.allowances)
        await self._loop.pause(0.05)
        return await super().claim(request)


async def served(loop: SimulationLoop, *, workers: int) -> tuple[Counter[str], int]:
    """Return how often each was served that shares the rate, and how many were asked for it."""
    clock = HostClock(loop)
    store = Distant(clock, loop)
    app = Redrive("memory://", concurrency=3)
    received: Counter[str] = Counter()

    async def receive(event: Event[Any]) -> None:
        received[event.type] += 1

    names = [f"d{number:02}" for number in range(MANY)]
    for number, name in enumerate(names):
        shared = SharedRate("acme", RATE) if number < SHARING else None
        declare: Any = app.handler
        declare(name, name=name, shared_rate=shared)(receive)
    executor = StrandExecutor(loop, Strand("threads"))
    ports = Ports(clock=clock, ids=CountingIds(), rng=SeededRng(), executor=executor)
    with app.rewired(ports, lambda: store):
        async with app, AsyncExitStack() as crew:
            await app.publish_many(
                [NewEvent(type=one) for one in names[:SHARING] for _ in range(9)]
            )
            for _ in range(workers):
                await crew.enter_async_context(app.worker())
            await loop.pause(SECONDS)
    return received, store.asked


@pytest.mark.parametrize("workers", [1, 2])
def test_many_who_share_a_rate_get_all_of_it_in_turn(workers: int) -> None:
    loop = SimulationLoop(0)
    try:
        received, asked = loop.run_until_complete(served(loop, workers=workers))
    finally:
        loop.discard()

    given = sum(received.values())
    assert given >= 0.9 * RATE.per_second * SECONDS
    assert len(received) == SHARING
    assert max(received.values()) - min(received.values()) <= 2
    assert asked <= 4 * given
