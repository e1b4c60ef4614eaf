"""How draining changes with the number of destinations that are paused and have work waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY"]

_MOST = 1_000
_OPEN = 20
_WAITING_AT_EACH = 10
_SAMPLES = 3


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    most = min(_MOST, scale.large // 100)
    async with AsyncExitStack() as stack:
        shops: dict[int, Shop] = {}
        for held in (0, most):
            # As many destinations each time: only what holds them differs.
            shop = Shop(
                url=store_url(arena, place, f"held_{held}"),
                concurrency=CONCURRENCY[arena],
                patterns={
                    **{f"open{one}": (f"open{one}.*",) for one in range(_OPEN)},
                    **{f"held{one}": (f"held{one}.*",) for one in range(most)},
                },
            )
            shops[held] = shop
            await stack.enter_async_context(shop.app)
            await _hold(shop, held)
            await shop.settle_down()
        for held, shop in turns(shops, scale.rounds):
            # So many that what a worker finds out once, at its start, does not weigh.
            await shop.publish(_SAMPLES * scale.sample)
            per_second = await shop.drain_all(_SAMPLES * scale.sample)
            yield Run(figures={"per_second": per_second}, point=str(held))


async def _hold(shop: Shop, count: int) -> None:
    """Pause the first so many, let work wait at each, and have what follows go to the others."""
    for one in range(count):
        await shop.app.operations.pause(f"held{one}", by="benchmark", why="to see")
    shop.attributes = lambda number: {"type": f"held{number % count}.paid"}
    await shop.publish(_WAITING_AT_EACH * count)
    shop.attributes = lambda number: {"type": f"open{number % _OPEN}.paid"}


STUDY = Study(
    title="with destinations that are held back",
    section=Section.GROWTH,
    axis="held back",
    figures=("per_second",),
    measure=_measure,
)
