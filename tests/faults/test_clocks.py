"""Machines whose clocks differ by ten minutes: the server's clock decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise

from redrive import Event, Redrive, Retry
from redrive.app.declaration import Ports
from redrive.clock import SystemClock, is_of_machine
from redrive.model.delivery import Status
from redrive.model.event import EventId
from redrive.observer import LeasesLost, Rescued, SettlementsRefused
from redrive.store import Query
from redrive.stores.postgres import PostgresStore
from redrive.testing.clock import FakeClock
from tests.app.recorder import Recorder
from tests.waiting import PATIENCE_SECONDS, eventually

FIRST_WAIT_SECONDS = 0.5


class WrongClock(SystemClock):
    """The clock of a machine that nobody has set."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


class Machine:
    """An app on a machine with a clock of its own; it keeps when it tried what."""

    def __init__(self, url: str, ahead: timedelta) -> None:
        self.url = url
        self.clock = WrongClock(ahead)
        self.recorder = Recorder()
        self.tries: list[tuple[int, float]] = []
        self.app = Redrive(url, lease="8s", poll="100ms", concurrency=5)
        self.app.observe(self.recorder)

        @self.app.handler(
            "order.*", name="billing", retry=Retry(base="500ms", jitter="none", max_attempts=3)
        )
        async def bill(event: Event[int]) -> None:
            self.tries.append((event.payload, self.clock.monotonic()))
            if event.payload % 2:
                await self._outlive_the_lease(event.id)
            else:
                raise ConnectionError("not yet")

    async def _outlive_the_lease(self, event_id: EventId) -> None:
        """Return when the lease of the claim would have run out, by the server's clock."""
        query = Query(status=Status.IN_FLIGHT, event_id=event_id)
        [claimed] = (await self.app.operations.deliveries(query)).deliveries

        async def has_outlived() -> bool:
            now = (await self.app.operations.status()).now
            return claimed.lease_until is not None and now > claimed.lease_until

        await eventually(has_outlived, what="the lease outlived")

    async def is_settled(self) -> bool:
        figures = await self.app.operations.status()
        return not any(one.pending or one.in_flight for one in figures.destinations)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        def make_store() -> PostgresStore:
            return PostgresStore(self.url, clock=self.clock, observer=self.recorder)

        with self.app.rewired(Ports(clock=self.clock), make_store):
            yield


async def test_workers_whose_clocks_differ_steal_no_lease_and_keep_to_the_waits(
    postgres_url: str,
) -> None:
    behind = Machine(postgres_url, timedelta(minutes=-5))
    ahead = Machine(postgres_url, timedelta(minutes=5))
    machines = (behind, ahead)
    with behind.at_work(), ahead.at_work():
        async with asyncio.timeout(PATIENCE_SECONDS), behind.app, ahead.app:
            async with behind.app.worker(), ahead.app.worker():
                for number in range(12):
                    await machines[number // 2 % 2].app.publish("order.paid", number)
                await eventually(behind.is_settled, what="everything settled")
            page = await ahead.app.operations.deliveries(Query(status=Status.DELIVERED), limit=50)

    facts = [*behind.recorder.facts, *ahead.recorder.facts]
    assert [
        one for one in facts if isinstance(one, LeasesLost | Rescued | SettlementsRefused)
    ] == []
    assert sorted(one.attempts for one in page.deliveries) == [1] * 6
    assert all(machine.tries for machine in machines)
    for number in range(0, 12, 2):
        tried = sorted(at for one in machines for payload, at in one.tries if payload == number)
        waits = [later - earlier for earlier, later in pairwise(tried)]
        assert len(waits) == 2
        # Those who go by a clock of their own are minutes early or late.
        assert FIRST_WAIT_SECONDS <= waits[0] <= FIRST_WAIT_SECONDS + PATIENCE_SECONDS
        assert 2 * FIRST_WAIT_SECONDS <= waits[1] <= 2 * FIRST_WAIT_SECONDS + PATIENCE_SECONDS


def test_only_a_clock_of_a_machine_gives_way_to_the_servers() -> None:
    assert is_of_machine(SystemClock())
    assert is_of_machine(WrongClock(timedelta(minutes=10)))
    assert not is_of_machine(FakeClock())
