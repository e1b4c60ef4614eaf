"""Procrastinate over psycopg: woken by notifications, takes jobs one at a time."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.describing import describe_postgres

__all__ = ["CONTENDER", "Queue"]

_CONCURRENCY = 10
_POOL = 20


class Queue(measures.Queue):
    """An app with one task; jobs that succeeded stay in its table, as by default."""

    way = f"async task, concurrency {_CONCURRENCY}"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        # As in production: a line for each job would only slow it down.
        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        library: Any = importlib.import_module("procrastinate")
        self._app = library.App(
            connector=library.PsycopgConnector(
                conninfo=place.url, min_size=_POOL, max_size=_POOL + 2
            )
        )
        self._handle: measures.Handle = lambda _: None
        self._task = self._app.task(name="noop")(self._noop)

    async def _noop(self, **payload: object) -> None:
        self._handle(payload)

    async def open(self) -> None:
        """Connect, and make its tables if there are none."""
        await self._app.open_async()
        found = await self._app.connector.execute_query_one_async(
            "SELECT to_regclass('procrastinate_jobs')::text AS name"
        )
        if found["name"] is None:
            await self._app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        """Disconnect."""
        await self._app.close_async()

    async def publish(self, payload: measures.Payload) -> None:
        """Defer one job."""
        await self._task.defer_async(**payload)

    async def publish_many(self, payloads: Sequence[measures.Payload]) -> None:
        """Defer them in one call."""
        await self._task.batch_defer_async(*payloads)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Run a worker; cancelled, it finishes what it has begun."""
        self._handle = handle
        running = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=_CONCURRENCY, install_signal_handlers=False, listen_notify=True
            )
        )
        await stop.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def waiting(self) -> int:
        """Return how many jobs have not succeeded."""
        found = await self._app.connector.execute_query_one_async(
            "SELECT count(*) AS count FROM procrastinate_jobs WHERE status <> 'succeeded'"
        )
        return int(found["count"])


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"procrastinate {version('procrastinate')}, psycopg {version('psycopg')}",
        **asyncio.run(describe_postgres(place.url)),
        "concurrency": str(_CONCURRENCY),
        "connections": str(_POOL + 2),
    }


CONTENDER = Contender(
    name="Procrastinate",
    role=Role.PEER,
    arena=Arena.POSTGRES,
    describe=_describe,
    workloads=measures.queue_workloads(__name__, Queue),
    requirements=["procrastinate", "psycopg[binary,pool]", "asyncpg", "uvloop"],
    most=5_000,
    is_quick=False,
)
