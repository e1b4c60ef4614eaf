"""Handlers that are plain functions: few run at once, and others go on."""

from __future__ import annotations

import threading

from redrive import Event, Redrive
from tests.waiting import PATIENCE_SECONDS, eventually


class Crowd:
    """Counts who is in a handler at the same time, until the doors open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.open = threading.Event()

    def enter(self, event: Event[object]) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.open.wait(PATIENCE_SECONDS)
        with self._lock:
            self.inside -= 1


async def test_all_destinations_together_use_few_threads_and_async_ones_go_on(sqlite: str) -> None:
    app, crowd, done = Redrive(sqlite, threads=3), Crowd(), list[object]()
    app.handler("order.*", name="one")(crowd.enter)
    app.handler("order.*", name="two")(crowd.enter)

    @app.handler("order.*")
    async def quick(event: Event[object]) -> None:
        done.append(event.payload)

    async with app:
        for number in range(8):
            await app.publish("order.paid", number)
        async with app.worker() as worker:
            await eventually(lambda: len(done) == 8, what="the async handler has had them all")
            await eventually(lambda: crowd.inside == 3, what="three threads are taken")
            status = await app.operations.status()
            crowd.open.set()
            await eventually(lambda: worker.tally.delivered == 24, what="all are delivered")

    assert crowd.most == 3
    # What cannot start is hardly claimed: others may take it.
    assert sum(one.in_flight for one in status.destinations if one.name != "quick") <= 5
