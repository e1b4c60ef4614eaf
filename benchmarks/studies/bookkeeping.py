"""What is promised in seconds: bookkeeping, delivery among many tenants, and recovery."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from benchmarks.contender import Arena, Place, Run
from benchmarks.figures import percentile
from benchmarks.measures.engine import TYPE
from benchmarks.measures.shop import FAULT, Shop, store_url
from benchmarks.study import Scale, Section, Study
from redrive import Breaker, Event, Fairness, Redrive, Retry
from redrive.model.settlement import Failed, FailureReason, RetryAt

__all__ = ["STUDY"]

_TENANTS = 1_000
_PER_SECOND = 200
_PATIENCE_SECONDS = 300.0


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    sample = max(20, scale.sample // 20)
    shop = Shop(url=store_url(arena, place, "bookkeeping"))
    async with shop.app:
        await shop.publish(2 * sample)
        await shop.settle_down()
        later = RetryAt(when=datetime.now(UTC) + timedelta(days=1), fault=FAULT)
        failed = Failed(reason=FailureReason.TERMINAL, fault=FAULT)
        for name, settlement in (("a retry", later), ("a dead letter", failed)):
            taken = await shop.time_settlements(sample, settlement)
            yield Run(figures=_percentiles(taken, 50, 99), point=name)
    waits = await _among_tenants(sample, store_url(arena, place, "among_tenants"))
    yield Run(figures=_percentiles(waits, 50, 95), point="publish to handler, 1,000 tenants")
    seconds = await _recovery(scale.seconds / 2, store_url(arena, place, "recovery"))
    yield Run(figures={"recovery_s": seconds}, point="a healed destination")


def _percentiles(seconds: list[float], *shares: int) -> dict[str, float]:
    return {f"p{one}_ms": percentile(seconds, one / 100) * 1e3 for one in shares}


async def _among_tenants(sample: int, url: str) -> list[float]:
    """Return how long events of many tenants take to their handler, published at a steady pace."""
    app, began, waits = Redrive(url), dict[int, float](), list[float]()
    done = asyncio.Event()

    @app.handler("order.*", name="noop", fairness=Fairness())
    async def handle(event: Event[int]) -> None:
        waits.append(time.perf_counter() - began[event.payload])
        if len(waits) == sample:
            done.set()

    async with app, app.worker():
        first = time.perf_counter()
        for number in range(sample):
            await asyncio.sleep(max(0.0, first + number / _PER_SECOND - time.perf_counter()))
            began[number] = time.perf_counter()
            await app.publish(TYPE, number, tenant=f"t{number * 7 % _TENANTS}")
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await done.wait()
    return waits


async def _recovery(outage: float, url: str) -> float:
    """Return in how many seconds a destination that is healed gets something again."""
    app, is_down = Redrive(url), True
    was_met, is_back = asyncio.Event(), asyncio.Event()
    retry = Retry(max_attempts=100, base="1s", cap="5s")

    @app.handler("order.*", name="crm", breaker=Breaker(), retry=retry)
    async def handle(event: Event[int]) -> None:  # noqa: ARG001 - every one is alike
        was_met.set()
        if is_down:
            raise ConnectionError("down")
        is_back.set()

    async with app, app.worker():
        for number in range(100):
            await app.publish(TYPE, number)
        await was_met.wait()
        await asyncio.sleep(outage)
        is_down, healed = False, time.perf_counter()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await is_back.wait()
        return time.perf_counter() - healed


STUDY = Study(
    title="what is promised in seconds",
    section=Section.PROMISES,
    axis="",
    figures=("p50_ms", "p95_ms", "p99_ms", "recovery_s"),
    measure=_measure,
)
