"""A worker leaves: what has ended is given back, what goes on is held until it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from redrive import Event, Redrive
from redrive.app.declaration import Ports
from redrive.app.store_factory import StoreFactory
from redrive.model.delivery import Delivery, Status
from redrive.observer import WorkerStopped
from redrive.store import Query
from redrive.testing import FakeClock
from tests.app.recorder import Recorder
from tests.waiting import eventually, spend

LEASE = timedelta(seconds=12)
_IN_FLIGHT = Query(status=Status.IN_FLIGHT)


class Stage:
    """An app with a lane whose first event will not end, and a clock that obeys."""

    def __init__(self, store: str, kind: str) -> None:
        self.clock = FakeClock()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.may_end = threading.Event()
        self.recorder = Recorder()
        self.app = Redrive(store, lease=LEASE, grace="0s", poll="1s")
        self.app.observe(self.recorder)
        declare = self.app.handler("order.*", name="billing", order="park", timeout="1h")
        declare(self.in_thread if kind == "thread" else self.deaf)
        self._stores = StoreFactory(Ports(clock=self.clock), self.recorder, str)

    def in_thread(self, event: Event[int]) -> None:
        self.begun.append(event.payload)
        if event.payload == 1 and len(self.begun) == 1:
            self.may_end.wait()
        self.ended.append(event.payload)

    async def deaf(self, event: Event[int]) -> None:
        self.begun.append(event.payload)
        while event.payload == 1 and len(self.begun) == 1 and not self.may_end.is_set():
            try:
                await spend(0.01)
            except asyncio.CancelledError:
                continue
        self.ended.append(event.payload)

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass until something is so."""

        async def is_so_by_now() -> bool:
            self.clock.advance("100ms")
            return await is_so()

        await eventually(is_so_by_now, what="what the play waits for")

    async def first(self) -> Delivery:
        return (await self.app.operations.deliveries(_IN_FLIGHT)).deliveries[0]

    async def play(self, act: Callable[[Stage], Awaitable[None]]) -> None:
        """Leave a worker whose handler goes on, and act beside a second one."""
        ports = Ports(clock=self.clock)
        with self.app.rewired(ports, lambda: self._stores.make(self.app.settings)):
            async with self.app:
                for number in (1, 2):
                    await self.app.publish("order.paid", number, key="a")
                leaving, staying = await self.app.make_worker(), await self.app.make_worker()
                left = asyncio.create_task(leaving.run())
                await self.until(self.has_begun)
                staying_on = asyncio.create_task(staying.run())
                leaving.stop()
                await self.until(lambda: _true(left.done()))
                try:
                    assert leaving.leaves_handlers
                    await act(self)
                finally:
                    self.may_end.set()
                    staying.stop()
                    await self.until(lambda: _true(staying_on.done()))

    async def has_begun(self) -> bool:
        return bool(self.begun)


async def _true(value: bool) -> bool:  # noqa: FBT001 - it is the answer itself
    return value


each_kind = pytest.mark.parametrize("kind", ["thread", "deaf"])


@each_kind
async def test_no_other_try_of_its_lane_begins_while_a_handler_goes_on(
    store: str, kind: str
) -> None:
    """In the process that the worker has left, for many leases."""

    async def act(stage: Stage) -> None:
        begun = stage.clock.now()

        async def is_long_ago() -> bool:
            assert stage.begun == [1]
            # A busy machine must not take the heartbeat's time: the next step waits for it.
            held = (await stage.first()).lease_until
            assert held is not None
            if held - stage.clock.now() > LEASE / 2:
                stage.clock.advance("1s")
            return stage.clock.now() - begun > 4 * LEASE

        await eventually(is_long_ago, what="many leases have passed")
        first = await stage.first()
        assert (first.status, first.attempts, first.crashes) == (Status.IN_FLIGHT, 1, 0)
        assert [one.result for one in first.log] == ["interrupted"]
        [stopped] = stage.recorder.of(WorkerStopped)
        assert (stopped.released, stopped.left) == (0, (first.id,))

        stage.may_end.set()
        await stage.until(lambda: _true(stage.ended == [1, 1, 2]))

    stage = Stage(store, kind)
    await stage.play(act)

    assert stage.begun == [1, 1, 2]
