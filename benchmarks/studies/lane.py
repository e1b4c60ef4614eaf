"""How draining other keys changes beside one long lane whose head does not end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]

_KEYS = 1_000


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for length in (0, scale.large // 100, scale.large // 10):
            shop = shops[length] = Shop(
                url=store_url(arena, place, f"lane_{length}"),
                concurrency=CONCURRENCY[arena],
                options={"order": "park"},
                attributes=lambda _: {"key": "hot"},
            )
            await stack.enter_async_context(shop.app)
            if length:
                await shop.publish(length)
                await shop.hold_head()
            shop.handled, shop.published, shop.attributes = 0, 0, _key
            await shop.publish(scale.sample)
            await shop.settle_down()
        for length, shop in turns(shops, scale.rounds):
            await shop.publish(scale.sample - shop.left)
            run = await shop.drain_some(scale.sample)
            yield Run(figures=run.figures, point=str(length))


def _key(number: int) -> Mapping[str, str]:
    return {"key": f"k{number % _KEYS}"}


STUDY = Study(
    title="beside one long lane",
    section=Section.GROWTH,
    axis="length of the lane",
    figures=("per_second",),
    measure=_measure,
    is_quick=False,
)
