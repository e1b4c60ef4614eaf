"""Redrive's own policies around a coroutine: gate with breaker and buckets, call, settlement.

They are what each delivery passes, without a store: the gate is read and charged, the outcome is
settled, and the result is told to the breaker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from importlib.metadata import version

import msgspec

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.calls import call_workload, noop_async
from redrive import Breaker, Event
from redrive.claiming.passage import charged, passage
from redrive.clock import SystemClock, SystemIds, SystemRng
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.event import EventId
from redrive.model.gate import Gate
from redrive.model.limits import Limits, Rate
from redrive.model.outcome import Succeeded
from redrive.model.settlement import Delivered
from redrive.policies.gate import reported
from redrive.policies.settlement import settle
from redrive.policies.terms import Terms

__all__ = ["CONTENDER"]

_ONE = {Kind.FIRST: 1}
_AMPLE = Rate(per_second=1e8, burst=1e8)
_LIMITS = Limits(breaker=Breaker(), rate=_AMPLE, retry_rate=_AMPLE, replay_rate=_AMPLE)


async def _make() -> Callable[[], Awaitable[object]]:
    clock, ids, rng, terms = SystemClock(), SystemIds(), SystemRng(), Terms()
    now = clock.now()
    leased = Leased(
        lease=Lease(DeliveryId(1), 1),
        destination="billing",
        event=Event(
            id=EventId(ids.event_id()),
            type="order.paid",
            payload=msgspec.Raw(b"{}"),
            published_at=now,
            occurred_at=now,
        ),
        attempt=1,
        kind=Kind.FIRST,
        claimed_at=now,
        enqueued_at=now - timedelta(seconds=1),
    )
    gate = Gate()

    async def call() -> None:
        nonlocal gate
        now = clock.now()
        gate, allowed = passage(gate, _LIMITS, in_flight=0, probing=0, now=now)
        assert min(allowed.total, allowed.first)
        gate = charged(gate, _LIMITS, _ONE, held_first=0, now=now)
        await noop_async()
        settlement = settle(Succeeded(), leased, terms, now=clock.now(), rng=rng)
        assert isinstance(settlement, Delivered)
        gate = reported(
            gate,
            _LIMITS,
            is_success=True,
            times=1,
            generation=leased.breaker_generation,
            now=now,
            chance=0.5,
        )

    return call


def _describe(place: Place) -> Mapping[str, str]:
    del place
    return {"library": f"redrive {version('redrive')}", "policies": "retry, breaker, three buckets"}


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    arena=Arena.CALLS,
    describe=_describe,
    workloads=call_workload(awaited=_make),
)
