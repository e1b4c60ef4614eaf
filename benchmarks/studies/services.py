"""How publishing, draining and resting change with the number of stored services over HTTP.

Each service has a tenant and a rule of its own, so that an event goes to one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import settle_down, store_url
from benchmarks.servers.http import Receiver
from benchmarks.study import Scale, Section, Study, turns
from redrive import NewEvent, Redrive
from redrive.operations import GatewayDocument
from redrive.worker import Worker

__all__ = ["STUDY", "Gateway"]

_SIZES = (1, 200, 10_000)
_DUE_AT_EACH = 2
_SLOWER = 4
"""A request takes that much longer than a handler that does nothing."""
_PER_CALL = 2_000
_LOOKS_EVERY = 0.002
_FOLLOWED = 30.0


class Gateway:
    """An app without code, so many services that one receiver plays, and as many rules."""

    def __init__(self, url: str, receiver: str, size: int) -> None:
        self.app = Redrive(url)
        self.size = size
        self._url = url
        self._service = {"url": receiver, "allow_private": True}
        self._published = 0

    async def apply(self) -> None:
        """Describe them all at once."""
        names = range(self.size)
        await self.app.operations.apply_gateway(
            GatewayDocument(
                services={f"s{n}": {**self._service, "tenant": f"t{n}"} for n in names},
                rules={f"r{n}": _rule(n) for n in names},
            ),
            by="bench",
        )

    async def publish(self, count: int) -> float:
        """Publish so many more, and return how many a second."""
        began = time.perf_counter()
        for begin in range(0, count, _PER_CALL):
            numbers = range(begin, min(begin + _PER_CALL, count))
            await self.app.publish_many(
                [
                    NewEvent(type="order.paid", tenant=f"t{n % self.size}", payload={"order": n})
                    for n in numbers
                ]
            )
        seconds = time.perf_counter() - began
        self._published += count
        await settle_down(self._url)
        return count / seconds

    async def drained(self, worker: Worker, count: int) -> None:
        """Wait until a worker has delivered so many."""
        while worker.tally.delivered < count:
            assert worker.tally.failed == 0, worker.tally
            await asyncio.sleep(_LOOKS_EVERY)

    async def drain(self, worker: Worker) -> float:
        """Deliver all that waits, and return how many a second, from the first delivery."""
        await self.drained(worker, 1)
        before, began = worker.tally.delivered, time.perf_counter()
        await self.drained(worker, self._published)
        return (self._published - before) / (time.perf_counter() - began)

    async def change_a_rule(self, worker: Worker) -> float:
        """Change a rule until an event was delivered by it; return the processor time, in ms.

        It is that of all: of who changes it, of who publishes, and of the worker.
        """
        await self._change(worker)  # the first one meets what was never used
        before = time.process_time()
        await self._change(worker)
        return (time.process_time() - before) * 1e3

    async def _change(self, worker: Worker) -> None:
        changed = await self.app.operations.save_rule(
            "r0", {**_rule(0), "template": {"changed": self._published}}, by="bench"
        )
        receipt = await self.app.publish("order.paid", {"order": 0}, tenant="t0")
        assert receipt.destinations == (f"s0/r0@{changed.version}",), receipt
        self._published += 1
        async with asyncio.timeout(_FOLLOWED):
            await self.drained(worker, self._published)


def _rule(number: int) -> dict[str, object]:
    return {
        "service": f"s{number}",
        "event": "order.*",
        "template": {"order": "{{ payload.order }}"},
    }


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    points = {size: f"services_{size}" for size in _SIZES if size <= scale.large // 100}
    with ExitStack() as stack, Receiver(stack).lend() as receiver:
        for number, (size, name) in enumerate(turns(points, scale.rounds)):
            # A store and an app of its own each time, as with destinations of code.
            gateway = Gateway(store_url(arena, place, f"{name}_{number}"), receiver, size)
            async with gateway.app:
                yield Run(figures=await _figures(gateway, scale), point=str(size))


async def _figures(gateway: Gateway, scale: Scale) -> Mapping[str, float]:
    total = max(_DUE_AT_EACH * gateway.size, scale.sample // _SLOWER)
    await gateway.apply()
    figures = {"published": await gateway.publish(total)}
    began = time.perf_counter()
    async with gateway.app.worker(services=True) as worker:
        await gateway.drained(worker, 1)
        figures["ready_ms"] = (time.perf_counter() - began) * 1e3
        figures["per_second"] = await gateway.drain(worker)
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(scale.seconds)
        passed = time.perf_counter() - began
        figures["cpu_percent"] = (time.process_time() - cpu) / passed * 100
        figures["change_ms"] = await gateway.change_a_rule(worker)
    return figures


STUDY = Study(
    title="with services of HTTP",
    section=Section.GROWTH,
    axis="services",
    figures=("per_second", "published", "ready_ms", "cpu_percent", "change_ms"),
    measure=_measure,
)
