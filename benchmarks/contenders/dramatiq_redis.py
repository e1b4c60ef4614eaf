"""Dramatiq on Redis: threads that take messages, and acknowledge them afterwards."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role, Workload
from benchmarks.measures.describing import describe_redis

__all__ = ["CONTENDER", "Queue"]

_THREADS = 8


class Queue(measures.Queue):
    """A broker with one actor; it has no call for many messages, and its calls block."""

    has_bulk = False
    way = f"worker with {_THREADS} threads"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        logging.getLogger("dramatiq").setLevel(logging.CRITICAL)
        self._library: Any = importlib.import_module("dramatiq")
        brokers: Any = importlib.import_module("dramatiq.brokers.redis")
        self._broker = brokers.RedisBroker(url=place.url)
        self._handle: measures.Handle = lambda _: None
        self._actor = self._library.actor(self._noop, actor_name="noop", broker=self._broker)

    def _noop(self, payload: measures.Payload) -> None:
        self._handle(payload)

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Disconnect."""
        self._broker.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Send one message."""
        self._actor.send(payload)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Run a worker; its end acknowledges what is done."""
        self._handle = handle
        worker = self._library.Worker(self._broker, worker_threads=_THREADS, worker_timeout=100)
        worker.start()
        await stop.wait()
        await asyncio.to_thread(worker.stop)

    async def waiting(self) -> int:
        """Return how many messages are queued or not yet acknowledged."""
        return int(self._broker.do_qsize("default"))


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"dramatiq {version('dramatiq')}, redis {version('redis')} with hiredis",
        **describe_redis(place.url),
        "threads": str(_THREADS),
    }


_WORKLOADS = measures.queue_workloads(__name__, Queue)

CONTENDER = Contender(
    name="Dramatiq",
    role=Role.PEER,
    arena=Arena.REDIS,
    describe=_describe,
    workloads={name: one for name, one in _WORKLOADS.items() if name is not Workload.CONCURRENT},
    requirements=["dramatiq", "redis", "hiredis"],
    most=10_000,
)
