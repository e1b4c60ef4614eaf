"""A shop of Redrive's that can be filled with whatever a study needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.queue import PAYLOAD
from redrive import Event, NewEvent, Redrive
from redrive.app.config import Settings
from redrive.clock import SystemClock
from redrive.model.outcome import Fault
from redrive.model.settlement import Delivered, Failed, FailureReason, Settlement
from redrive.store import Allowance, ClaimRequest, Settled, Store
from redrive.stores.postgres import PostgresStore
from redrive.stores.sqlite import SqliteStore

__all__ = ["CONCURRENCY", "FAULT", "Shop", "settle_down", "store_url"]

CONCURRENCY = {Arena.POSTGRES: 500, Arena.SQLITE: 500}
_PER_CALL = 2_000
_LEASE = timedelta(hours=1)
_CLAIMED = 100
_CLAIMS = 30
_PIECE = 8_000
_TABLES = """
SELECT string_agg(c.oid::regclass::text, ', ')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r'
"""
FAULT = Fault(error_class="ValueError", message="a bad order", rule="terminal by its class")

Attributes = Callable[[int], Mapping[str, Any]]


def store_url(arena: Arena, place: Place, name: str) -> str:
    """Return the address of a store of its own within a place."""
    if arena is Arena.POSTGRES:
        return f"{place.url}?schema={name}"
    return f"sqlite:///{place.folder}/{name}.db"


@dataclass(kw_only=True)
class Shop:
    """An app with one destination, or with those that have `patterns`.

    `attributes` give each event its key, tenant and so on.
    """

    url: str
    concurrency: int = Settings().concurrency
    patterns: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"noop": ["order.*"]})
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Attributes = lambda _: {}
    published: int = 0
    handled: int = 0

    def __post_init__(self) -> None:
        self.app = Redrive(self.url, concurrency=self.concurrency)
        self._enough = asyncio.Event()
        self._wanted = 0
        declare: Any = self.app.handler
        for name, patterns in self.patterns.items():
            declare(*patterns, name=name, **self.options)(self._handle)

    async def _handle(self, event: Event[Any]) -> None:  # noqa: ARG002 - it does nothing
        self.handled += 1
        if self.handled >= self._wanted:
            self._enough.set()

    async def publish(self, count: int) -> None:
        """Publish so many more."""
        for begin in range(0, count, _PER_CALL):
            numbers = range(begin, min(begin + _PER_CALL, count))
            given = [{"type": "order.paid", **self.attributes(number)} for number in numbers]
            await self.app.publish_many([NewEvent(payload=PAYLOAD, **one) for one in given])
        self.published += count

    async def drain_some(self, count: int) -> Run:
        """Deliver at least so many, and tell how fast."""
        before, self._wanted = self.handled, self.handled + count
        self._enough.clear()
        began = time.perf_counter()
        async with self.app.worker():
            await self._enough.wait()
        seconds = time.perf_counter() - began
        return Run(figures={"per_second": (self.handled - before) / seconds})

    async def drain_all(self, count: int) -> float:
        """Deliver the so many that wait, and return how many a second, from the first delivery."""
        last, self._wanted = self.handled + count, self.handled + 1
        self._enough.clear()
        async with self.app.worker():
            await self._enough.wait()
            before, began = self.handled, time.perf_counter()
            self._wanted = last
            self._enough.clear()
            if before < last:
                await self._enough.wait()
            seconds = time.perf_counter() - began
        assert self.handled == last, (self.handled, last)
        return (last - before) / seconds

    async def settle(self, count: int, settlement: Settlement | None = None) -> None:
        """Claim so many and settle them as if they had run: as delivered, or as dead letters."""
        how = settlement or Delivered()
        async with _opened_store(self.url) as store:
            while count > 0:
                claim = await store.claim(_request(min(count, _PER_CALL)))
                assert claim.deliveries
                await store.settle(
                    [Settled(lease=x.lease, settlement=how) for x in claim.deliveries]
                )
                count -= len(claim.deliveries)
                self.handled += len(claim.deliveries)

    async def fail(self, count: int) -> None:
        """Make dead letters of the next ones."""
        await self.settle(count, Failed(reason=FailureReason.TERMINAL, fault=FAULT))

    async def hold_head(self) -> None:
        """Claim one and keep it, as a handler would that takes an hour."""
        async with _opened_store(self.url) as store:
            claim = await store.claim(_request(1))
            assert len(claim.deliveries) == 1

    async def time_claims(self) -> float:
        """Return how long a claim of 100 takes, in milliseconds; what is claimed is settled."""
        taken: list[float] = []
        async with _opened_store(self.url) as store:
            for _ in range(_CLAIMS):
                began = time.perf_counter()
                claim = await store.claim(_request(_CLAIMED))
                taken.append(time.perf_counter() - began)
                assert len(claim.deliveries) == _CLAIMED
                done = [Settled(lease=x.lease, settlement=Delivered()) for x in claim.deliveries]
                await store.settle(done)
        self.handled += _CLAIMS * _CLAIMED
        return median(taken) * 1e3

    async def time_settlements(self, count: int, settlement: Settlement) -> list[float]:
        """Settle so many one by one, and return how many seconds each took."""
        taken: list[float] = []
        async with _opened_store(self.url) as store:
            while len(taken) < count:
                claim = await store.claim(_request(min(count - len(taken), _CLAIMED)))
                assert claim.deliveries
                for leased in claim.deliveries:
                    began = time.perf_counter()
                    await store.settle([Settled(lease=leased.lease, settlement=settlement)])
                    taken.append(time.perf_counter() - began)
        self.handled += count
        return taken

    @property
    def left(self) -> int:
        """How many are published and not handled."""
        return self.published - self.handled

    async def measure(self, *, backlog: int, sample: int, point: str) -> Run:
        """Tell how fast so many are drained while the backlog keeps its size, and how fast claimed.

        They are drained in pieces, and the backlog is filled up between them: with little waiting,
        one piece would be over before it means anything. With much waiting it is done likewise.
        """
        done, seconds = 0, 0.0
        while done < sample:
            await self.publish(max(0, backlog - self.left))
            before = self.handled
            run = await self.drain_some(min(sample, _PIECE))
            done += self.handled - before
            seconds += (self.handled - before) / run.figures["per_second"]
        await self.publish(max(0, _CLAIMS * _CLAIMED - self.left))
        claim_ms = await self.time_claims()
        return Run(figures={"per_second": done / seconds, "claim_ms": claim_ms}, point=point)

    async def settle_down(self) -> None:
        """Let the database look at what it was filled with, as it would by itself in time."""
        await settle_down(self.url)


async def settle_down(url: str) -> None:
    """Let the database of a store look at what it was filled with."""
    if url.startswith("postgresql"):
        server, _, schema = url.partition("?schema=")
        connection = await asyncpg.connect(server)
        tables = await connection.fetchval(_TABLES, schema)
        await connection.execute(f"VACUUM ANALYZE {tables}")
        await connection.execute("CHECKPOINT")
        await connection.close()


@asynccontextmanager
async def _opened_store(url: str) -> AsyncIterator[Store]:
    store: Store
    if url.startswith("postgresql"):
        store = PostgresStore(url, clock=SystemClock())
    else:
        store = SqliteStore(Path(url.removeprefix("sqlite:///")), clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _request(count: int) -> ClaimRequest:
    return ClaimRequest(
        worker="bench",
        allowances=(Allowance(destination="noop", total=count),),
        generations=("default",),
        limit=1_000,
        lease=_LEASE,
    )
