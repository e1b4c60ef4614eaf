"""How draining and publishing change with the number of destinations."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]

_SIZES = (1, 20, 200, 2_000, 10_000)
_DUE_AT_EACH = 10
_FEW = 100


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    points = {size: f"destinations_{size}" for size in _SIZES if size <= scale.large // 100}
    for number, (size, name) in enumerate(turns(points, scale.rounds)):
        # A store and an app of its own each time: what others declare is not in its way.
        shop = Shop(
            url=store_url(arena, place, f"{name}_{number}"),
            patterns={f"d{one}": (f"d{one}.*", "all.*") for one in range(size)},
        )
        async with shop.app:
            yield Run(figures=await _figures(shop, size, scale), point=str(size))


async def _figures(shop: Shop, size: int, scale: Scale) -> Mapping[str, float]:
    total = max(_DUE_AT_EACH * size, scale.sample, scale.small) // size * size
    figures = {}

    shop.attributes = lambda number: {"type": f"d{number % size}.paid"}
    began = time.perf_counter()
    await shop.publish(total)
    figures["published"] = total / (time.perf_counter() - began)
    await shop.settle_down()
    figures["at_each"] = await shop.drain_all(total)

    few = max(1, size // _FEW)
    shop.attributes = lambda number: {"type": f"d{number % few * _FEW}.paid"}
    await shop.publish(total)
    await shop.settle_down()
    figures["at_few"] = await shop.drain_all(total)

    shop.attributes = lambda _: {"type": "all.paid"}
    await shop.publish(total // size)
    await shop.settle_down()
    figures["to_all"] = await shop.drain_all(total)
    return figures


STUDY = Study(
    title="with destinations",
    section=Section.GROWTH,
    axis="destinations",
    figures=("at_each", "at_few", "to_all", "published"),
    measure=_measure,
)
