"""PgQueuer over asyncpg: woken by notifications, takes and logs jobs 500 at a time."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.describing import describe_postgres

__all__ = ["CONTENDER", "Queue"]

_BATCH = 500
_POOL = 10
_ENTRYPOINT = "noop"


class Queue(measures.Queue):
    """Publishes through a pool; each worker has a connection of its own, as its guide does."""

    way = f"async entrypoint, batch_size {_BATCH}"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        # As in production: a line for each job would only slow it down.
        logging.getLogger("pgqueuer").setLevel(logging.WARNING)
        self._asyncpg: Any = importlib.import_module("asyncpg")
        self._library: Any = importlib.import_module("pgqueuer")
        self._pool: Any = None
        self._queries: Any = None

    async def open(self) -> None:
        """Connect, and install its tables if there are none."""
        self._pool = await self._asyncpg.create_pool(
            self.place.url, min_size=_POOL, max_size=_POOL, reset=_leave_as_is
        )
        self._queries = self._library.Queries.from_asyncpg_pool(self._pool)
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(_ENTRYPOINT, json.dumps(payload).encode())

    async def publish_many(self, payloads: Sequence[measures.Payload]) -> None:
        """Enqueue them in one call."""
        count = len(payloads)
        encoded = [json.dumps(one).encode() for one in payloads]
        await self._queries.enqueue([_ENTRYPOINT] * count, encoded, [0] * count)

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Run a manager; its end writes down what is done."""
        connection = await self._asyncpg.connect(self.place.url)
        manager = self._library.PgQueuer.from_asyncpg_connection(connection)

        async def noop(job: Any) -> None:  # noqa: ANN401 - its type is not here
            handle(json.loads(job.payload))

        manager.entrypoint(_ENTRYPOINT)(noop)
        running = asyncio.create_task(manager.run(batch_size=_BATCH))
        await stop.wait()
        manager.shutdown.set()
        await running
        await connection.close()

    async def waiting(self) -> int:
        """Return how many jobs are in its table."""
        return int(await self._pool.fetchval("SELECT count(*) FROM pgqueuer"))


async def _leave_as_is(_connection: object) -> None:
    """By default the pool resets a connection after each call, which is a round trip more."""


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"pgqueuer {version('pgqueuer')}, asyncpg {version('asyncpg')}",
        **asyncio.run(describe_postgres(place.url)),
        "batch_size": str(_BATCH),
        "connections to publish": str(_POOL),
    }


CONTENDER = Contender(
    name="PgQueuer",
    role=Role.PEER,
    arena=Arena.POSTGRES,
    describe=_describe,
    workloads=measures.queue_workloads(__name__, Queue),
    requirements=["pgqueuer", "asyncpg", "uvloop"],
)
