"""Celery on Redis: what most people would take."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role, Workload
from benchmarks.measures.describing import describe_redis

__all__ = ["CONTENDER", "Queue"]

_PREFETCH = 100


class Queue(measures.Queue):
    """An app with one task, without results; it has no call for many tasks, and its calls block."""

    has_bulk = False
    way = f"solo pool, prefetch {_PREFETCH}"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        logging.getLogger("celery").setLevel(logging.CRITICAL)
        self._app: Any = importlib.import_module("celery").Celery("bench", broker=place.url)
        self._app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=_PREFETCH,
            worker_hijack_root_logger=False,
            worker_send_task_events=False,
            broker_connection_retry_on_startup=True,
        )
        self._handle: measures.Handle = lambda _: None

        def noop(payload: measures.Payload) -> None:
            self._handle(payload)

        self._task = self._app.task(name="noop")(noop)

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Disconnect."""
        self._app.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Send one task."""
        self._task.delay(payload)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Run a worker on a thread."""
        self._handle = handle
        state: Any = importlib.import_module("celery.worker.state")
        worker = self._app.WorkController(
            app=self._app,
            pool="solo",
            concurrency=1,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        running = threading.Thread(target=worker.start, daemon=True)
        running.start()
        await stop.wait()
        state.should_stop = 0
        await asyncio.to_thread(running.join)

    async def waiting(self) -> int:
        """Return how many tasks are queued or not yet acknowledged."""
        with self._app.connection_for_read() as connection:
            client = connection.default_channel.client
            return int(client.llen("celery")) + int(client.hlen("unacked"))


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"celery {version('celery')}, redis {version('redis')} with hiredis",
        **describe_redis(place.url),
        "pool": "solo",
        "prefetch": str(_PREFETCH),
    }


_WORKLOADS = measures.queue_workloads(__name__, Queue)

CONTENDER = Contender(
    name="Celery",
    role=Role.PEER,
    arena=Arena.REDIS,
    describe=_describe,
    workloads={name: one for name, one in _WORKLOADS.items() if name is not Workload.CONCURRENT},
    requirements=["celery", "redis", "hiredis"],
    most=5_000,
    is_quick=False,
)
