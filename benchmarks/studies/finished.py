"""How draining and claiming change with the number of deliveries that are done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    backlog = scale.small
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for size in (0, scale.large // 10, scale.large):
            url = store_url(arena, place, f"finished_{size}")
            shops[size] = Shop(url=url, concurrency=CONCURRENCY[arena])
            await stack.enter_async_context(shops[size].app)
            await shops[size].publish(size)
            await shops[size].settle(size)
            await shops[size].publish(backlog)
            await shops[size].settle_down()
        for size, shop in turns(shops, scale.rounds):
            yield await shop.measure(backlog=backlog, sample=scale.sample, point=str(size))


STUDY = Study(
    title="with finished rows",
    section=Section.GROWTH,
    axis="delivered before",
    figures=("per_second", "claim_ms"),
    measure=_measure,
    is_quick=False,
)
