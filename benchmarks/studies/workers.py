"""How draining changes with the number of worker processes."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import store_url
from benchmarks.measures.workloads import drain_by
from benchmarks.study import Scale, Section, Study, engine_of, turns

__all__ = ["STUDY"]


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    module = engine_of(arena)
    engine: Any = importlib.import_module(f"benchmarks.contenders.{module}")
    points = {workers: f"by_{workers}" for workers in (1, 2, 4)}
    for number, (workers, name) in enumerate(turns(points, scale.rounds)):
        folder = place.folder / f"{name}_{number}"
        folder.mkdir()
        url = store_url(arena, place, f"{name}_{number}") if place.url else ""
        queue = engine.Queue(Place(folder=folder, url=url))
        run = await drain_by(workers, scale.sample, queue, module)
        yield Run(figures=run.figures, point=str(workers))


STUDY = Study(
    title="with worker processes",
    section=Section.GROWTH,
    axis="worker processes",
    figures=("per_second",),
    measure=_measure,
    is_quick=False,
)
