"""After an outage, however long, a destination is soon back, and nothing has died of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import Breaker, BreakerChanged, Query, Redrive, Retry
from redrive.model.delivery import Leased, Status
from redrive.model.gate import Closed, Open
from redrive.model.outcome import Fault, Faulted, Nature, Outcome, Succeeded
from redrive.testing import Kit
from tests.app.recorder import Recorder
from tests.app.test_limits import keeps_to

HOUR = 3_600.0
DOWN = Faulted(
    fault=Fault(error_class="ConnectionError", message="refused", rule="network"),
    nature=Nature.TRANSIENT,
)
Ordering = Literal["none", "park"]


class Service:
    """A service that is down for a while, and remembers when it was called and took something."""

    batch = 1

    def __init__(
        self,
        order: Ordering,
        *,
        seed: int = 0,
        breaker: Breaker | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.app = Redrive("memory://")
        self.app.destination(
            "service",
            "order.*",
            transport=self,
            order=order,
            breaker=breaker or Breaker(),
            retry=retry or Retry(),
            retry_rate="20/s",
        )
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.kit = Kit(self.app, seed=seed)
        self.down_until = 0.0
        self.taken: list[float] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        now = self.kit.clock.monotonic()
        if now < self.down_until:
            return [DOWN] * len(deliveries)
        self.taken += [now] * len(deliveries)
        return [Succeeded()] * len(deliveries)

    async def suffer(self, seconds: float, *, events: int) -> None:
        """Be down for so long, while events of a few keys keep coming."""
        self.down_until = self.kit.clock.monotonic() + seconds
        for number in range(events):
            await self.app.publish("order.paid", number, key=f"order-{number % 5}")
            await self.kit.run_for(timedelta(seconds=seconds / events))

    async def undelivered(self) -> int:
        query = Query(status=Status.PENDING)
        return len((await self.app.operations.deliveries(query, limit=1_000)).deliveries)


async def survive(service: Service, seconds: float, *, events: int, probes: int = 1) -> None:
    """Live through an outage, and check all that is promised of it."""
    async with service.kit:
        await service.suffer(seconds, events=events)
        healed = service.down_until
        await service.kit.run_for("5m")

        assert service.taken[0] - healed <= min(60.0, max(5.0, seconds / 2))
        assert len(service.taken) == events
        assert await service.undelivered() == 0
        assert service.kit.dead_letters() == []
        assert list(await service.app.operations.lanes()) == []
        # Three probes close the breaker, and with the last of them others may be under way.
        assert keeps_to(20, 2, service.taken[2 + probes :])
        [gate] = await service.app.operations.gates()
        assert isinstance(gate.gate.breaker, Closed)
        changes = [type(one.change.after) for one in service.recorder.of(BreakerChanged)]
        assert changes.count(Closed) == (1 if Open in changes else 0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("order", ["none", "park"])
@pytest.mark.parametrize("seconds", [1.0, 20.0, 300.0, HOUR, 8 * HOUR])
async def test_a_destination_is_soon_back_after_an_outage(seconds: float, order: Ordering) -> None:
    await survive(Service(order), seconds, events=30)


@pytest.mark.timeout(240)
@settings(max_examples=12)
@given(
    seconds=st.floats(1, 900),
    order=st.sampled_from(["none", "park"]),
    events=st.integers(8, 40),
    failures=st.integers(1, 5),
    most=st.integers(2, 5),
    probes=st.integers(1, 3),
    seed=st.integers(0, 1_000),
)
async def test_no_outage_kills_or_parks_anything(
    *,
    seconds: float,
    order: Ordering,
    events: int,
    failures: int,
    most: int,
    probes: int,
    seed: int,
) -> None:
    breaker = Breaker(failures=failures, probes=probes)
    service = Service(order, seed=seed, breaker=breaker, retry=Retry(max_attempts=most))
    await survive(service, seconds, events=events, probes=probes)
