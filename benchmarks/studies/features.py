"""What the features of a destination cost when they are switched on, one by one and together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study, turns
from redrive import Breaker, Fairness

__all__ = ["STUDY"]

_AMPLE = "1000000/s"
_TENANTS = 100
_KEYS = 1_000
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "bare": {},
    "breaker": {"breaker": Breaker()},
    "buckets": {"rate": _AMPLE, "retry_rate": _AMPLE, "replay_rate": _AMPLE, "retry_budget": 0.1},
    "order": {"order": "park"},
    "fairness": {"fairness": Fairness(weights={"t1*": 2}, rate=_AMPLE)},
}
_ALL = {name: value for one in _OPTIONS.values() for name, value in one.items()}


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    async with AsyncExitStack() as stack:
        shops: dict[str, Shop] = {}
        for name, options in {**_OPTIONS, "all": _ALL}.items():
            shops[name] = Shop(
                url=store_url(arena, place, f"feature_{name}"),
                concurrency=CONCURRENCY[arena],
                options=options,
                attributes=_ATTRIBUTES.get(name, lambda _: {}),
            )
            await stack.enter_async_context(shops[name].app)
        for name, shop in turns(shops, scale.rounds):
            await shop.publish(scale.sample)
            await shop.settle_down()
            run = await shop.drain_some(scale.sample)
            yield Run(figures=run.figures, point=name)


def _key(number: int) -> Mapping[str, str]:
    return {"key": f"k{number % _KEYS}"}


def _tenant(number: int) -> Mapping[str, str]:
    return {"tenant": f"t{number % _TENANTS}"}


def _both(number: int) -> Mapping[str, str]:
    return {**_key(number), **_tenant(number)}


_ATTRIBUTES = {"order": _key, "fairness": _tenant, "all": _both}

STUDY = Study(
    title="features switched on",
    section=Section.FEATURES,
    axis="feature",
    figures=("per_second",),
    measure=_measure,
)
