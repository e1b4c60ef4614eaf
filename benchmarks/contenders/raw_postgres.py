"""The limit of PostgreSQL over asyncpg: the least any queue must do, with nothing around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from benchmarks import measures
from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.describing import describe_postgres

__all__ = ["CONTENDER", "Queue"]

_BATCH = 500
_POOL = 10
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status smallint NOT NULL DEFAULT 0,
    payload text NOT NULL
);
CREATE INDEX IF NOT EXISTS ready ON tasks (id) WHERE status = 0;
CREATE INDEX IF NOT EXISTS taken ON tasks (id) WHERE status = 1;
"""
_CLAIM = """
UPDATE tasks SET status = 1 WHERE id = ANY(ARRAY(
    SELECT id FROM tasks WHERE status = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)) RETURNING id, payload
"""
_MARK = "UPDATE tasks SET status = 2 WHERE id = ANY($1::bigint[])"


class Queue(measures.Queue):
    """A table, and statements for batches of 500; it looks again when there is nothing."""

    way = f"claim {_BATCH}, then mark them, each in a commit"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._pool: Any = None

    async def open(self) -> None:
        """Connect, and make the table."""
        self._pool = await asyncpg.create_pool(
            self.place.url, min_size=_POOL, max_size=_POOL, reset=_leave_as_is
        )
        await self._pool.execute(_SCHEMA)

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()

    async def publish(self, payload: measures.Payload) -> None:
        """Insert a row."""
        await self._pool.execute("INSERT INTO tasks (payload) VALUES ($1)", json.dumps(payload))

    async def publish_many(self, payloads: Sequence[measures.Payload]) -> None:
        """Insert all in one statement."""
        await self._pool.execute(
            "INSERT INTO tasks (payload) SELECT unnest($1::text[])",
            [json.dumps(one) for one in payloads],
        )

    async def work(self, handle: measures.Handle, stop: asyncio.Event) -> None:
        """Claim, handle and mark in a loop on one connection."""
        async with self._pool.acquire() as connection:
            while not stop.is_set():
                rows = await connection.fetch(_CLAIM, _BATCH)
                if not rows:
                    await asyncio.sleep(0.001)
                    continue
                for row in rows:
                    handle(json.loads(row["payload"]))
                await connection.execute(_MARK, [row["id"] for row in rows])

    async def waiting(self) -> int:
        """Return how many are not marked."""
        return int(await self._pool.fetchval("SELECT count(*) FROM tasks WHERE status <> 2"))


async def _leave_as_is(_connection: object) -> None:
    """By default the pool resets a connection after each call, which is a round trip more."""


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"asyncpg {asyncpg.__version__}",
        **asyncio.run(describe_postgres(place.url)),
        "batch": str(_BATCH),
    }


CONTENDER = Contender(
    name="raw asyncpg",
    role=Role.LIMIT,
    arena=Arena.POSTGRES,
    describe=_describe,
    workloads=measures.queue_workloads(__name__, Queue),
)
