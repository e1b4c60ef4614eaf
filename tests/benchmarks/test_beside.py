"""The studies of what merely waits, once and small: it still waits in the end."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Arena, Place
from benchmarks.measures.shop import store_url
from benchmarks.studies import held, scheduled
from benchmarks.study import Scale
from redrive import Redrive

SMALL = Scale(rounds=1, large=4_000, sample=200, seconds=1.0, small=200)


async def test_what_is_scheduled_stays_where_it_is(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, url="")

    runs = [run async for run in scheduled.STUDY.measure(SMALL, Arena.SQLITE, place)]

    assert [run.point for run in runs] == ["0", "400", "4000"]
    assert all(set(run.figures) == set(scheduled.STUDY.figures) for run in runs)
    async with Redrive(store_url(Arena.SQLITE, place, "scheduled_4000")) as app:
        figures = await app.operations.status()
    waiting = {one.name: one.pending for one in figures.destinations}
    assert waiting["later"] == 4_000


async def test_what_is_held_back_is_not_delivered(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, url="")

    runs = [run async for run in held.STUDY.measure(SMALL, Arena.SQLITE, place)]

    assert [run.point for run in runs] == ["0", "40"]
    async with Redrive(store_url(Arena.SQLITE, place, "held_40")) as app:
        figures = await app.operations.status()
    assert {one.pending for one in figures.destinations if one.name.startswith("held")} == {10}
    assert sum(one.delivered for one in figures.destinations) == 600
