"""Redrive as a queue, whatever its store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.contender import Place
from benchmarks.measures.queue import Handle, Payload, Queue
from redrive import Event, NewEvent, Redrive

__all__ = ["TYPE", "RedriveQueue"]

TYPE = "order.paid"


class RedriveQueue(Queue):
    """An app with one destination that does nothing but count."""

    def __init__(self, place: Place, *, store: str, concurrency: int) -> None:
        super().__init__(place)
        self.url = store
        self.app = Redrive(store, concurrency=concurrency)
        self.way = f"async handler, concurrency {concurrency}"
        self._handle: Handle = lambda _: None
        self.app.handler("order.*", name="noop")(self._call)

    async def _call(self, event: Event[Any]) -> None:
        self._handle(event.payload)

    async def open(self) -> None:
        """Open the store, and with it the routes."""
        await self.app.open()

    async def close(self) -> None:
        """Close it."""
        await self.app.close()

    async def publish(self, payload: Payload) -> None:
        """Publish one."""
        await self.app.publish(TYPE, payload)

    async def publish_many(self, payloads: Sequence[Payload]) -> None:
        """Publish them in one call."""
        await self.app.publish_many([NewEvent(type=TYPE, payload=one) for one in payloads])

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        """Run a worker."""
        self._handle = handle
        async with self.app.worker():
            await stop.wait()

    async def waiting(self) -> int:
        """Return what is neither delivered nor failed, once nothing is amiss."""
        figures = await self.app.operations.status()
        (noop,) = figures.destinations
        assert (noop.failed, figures.refused_settlements) == (0, 0)
        return noop.pending + noop.in_flight
