"""How draining and claiming change with the number of deliveries that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for size in scale.sizes:
            url = store_url(arena, place, f"waiting_{size}")
            shops[size] = Shop(url=url, concurrency=CONCURRENCY[arena])
            await stack.enter_async_context(shops[size].app)
            await shops[size].publish(size)
            await shops[size].settle_down()
        for size, shop in turns(shops, scale.rounds):
            yield await shop.measure(backlog=size, sample=scale.sample, point=str(size))


STUDY = Study(
    title="with a backlog",
    section=Section.GROWTH,
    axis="deliveries that wait",
    figures=("per_second", "claim_ms"),
    measure=_measure,
    is_quick=False,
)
