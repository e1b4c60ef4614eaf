"""Work that comes without a word, as from somebody's own transaction, is looked for."""

from __future__ import annotations

from redrive import Event, Redrive
from redrive.app.declaration import Ports
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import CountingIds, InlineExecutor
from tests.waiting import eventually


class Silent(MemoryStore):
    """A store that tells nobody of what comes."""

    def _tell(self) -> None:
        pass


async def rest(clock: FakeClock) -> None:
    """Let everybody go on until they wait."""
    for _ in range(50):
        await clock.sleep(0)


async def test_a_worker_looks_more_often_while_such_work_comes() -> None:
    app, clock, seen = Redrive("memory://"), FakeClock(), list[str]()

    @app.handler("order.*")
    async def bill(event: Event[str]) -> None:
        seen.append(event.payload)

    ports = Ports(clock=clock, ids=CountingIds(), executor=InlineExecutor())
    store = Silent(clock)
    with app.rewired(ports, lambda: store):
        async with app, app.worker():
            await rest(clock)

            await app.publish("order.paid", "after a second")
            clock.advance("999ms")
            await rest(clock)
            assert seen == []
            clock.advance("1ms")
            await eventually(lambda: len(seen) == 1, what="found by a look")
            await rest(clock)

            await app.publish("order.paid", "soon")
            clock.advance("20ms")
            await eventually(lambda: len(seen) == 2, what="found by a quick look")

            for _ in range(10):
                await rest(clock)
                clock.advance("1s")
            await rest(clock)
            await app.publish("order.paid", "after a second again")
            clock.advance("900ms")
            await rest(clock)
            assert len(seen) == 2
            clock.advance("100ms")
            await eventually(lambda: len(seen) == 3, what="found by a look")
