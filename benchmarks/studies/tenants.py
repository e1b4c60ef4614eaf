"""How draining and claiming change with the number of tenants that share the backlog."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    backlog = 3 * scale.small
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for tenants in (1, 100, 10_000):
            shops[tenants] = Shop(
                url=store_url(arena, place, f"tenants_{tenants}"),
                concurrency=CONCURRENCY[arena],
                attributes=partial(_tenant, tenants=tenants),
            )
            await stack.enter_async_context(shops[tenants].app)
            await shops[tenants].publish(backlog)
            await shops[tenants].settle_down()
        for tenants, shop in turns(shops, scale.rounds):
            yield await shop.measure(backlog=backlog, sample=scale.sample, point=str(tenants))


def _tenant(number: int, *, tenants: int) -> Mapping[str, str]:
    return {"tenant": f"t{number % tenants:05}"}


STUDY = Study(
    title="with tenants",
    section=Section.GROWTH,
    axis="tenants",
    figures=("per_second", "claim_ms"),
    measure=_measure,
)
