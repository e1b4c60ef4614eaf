"""How draining changes with what another destination has scheduled for later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns
from redrive.clock import SystemClock

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    backlog, due = scale.small, SystemClock().now() + timedelta(days=10)
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for size in (0, scale.large // 10, scale.large):
            shop = Shop(
                url=store_url(arena, place, f"scheduled_{size}"),
                concurrency=CONCURRENCY[arena],
                patterns={"noop": ("order.*",), "later": ("reminder.*",)},
            )
            shops[size] = shop
            await stack.enter_async_context(shop.app)
            shop.attributes = lambda _: {"type": "reminder.due", "due": due}
            await shop.publish(size)
            shop.attributes = lambda _: {}
            shop.published = 0  # these stay where they are
            await shop.publish(backlog)
            await shop.settle_down()
        for size, shop in turns(shops, scale.rounds):
            yield await shop.measure(backlog=backlog, sample=scale.sample, point=str(size))


STUDY = Study(
    title="with scheduled deliveries of another destination",
    section=Section.GROWTH,
    axis="scheduled",
    figures=("per_second", "claim_ms"),
    measure=_measure,
    is_quick=False,
)
