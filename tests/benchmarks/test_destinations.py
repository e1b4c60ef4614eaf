"""The study of destinations, once and small: who gets what, and what is told of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.contender import Arena, Place
from benchmarks.measures.shop import Shop, store_url
from benchmarks.studies.destinations import STUDY
from benchmarks.study import Scale
from redrive import Redrive

SMALL = Scale(rounds=1, large=20_000, sample=100, seconds=1.0, small=200)


async def test_all_then_one_in_a_hundred_then_all_by_one_event_get_as_much(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, url="")

    runs = [run async for run in STUDY.measure(SMALL, Arena.SQLITE, place)]

    assert [run.point for run in runs] == ["1", "20", "200"]
    assert all(set(run.figures) == set(STUDY.figures) for run in runs)
    async with Redrive(store_url(Arena.SQLITE, place, "destinations_200_2")) as app:
        figures = await app.operations.status()
    delivered = {one.name: one.delivered for one in figures.destinations}
    assert (delivered["d0"], delivered["d100"]) == (1_020, 1_020)
    assert Counter(delivered.values()) == {20: 198, 1_020: 2}


async def test_draining_all_counts_from_the_first_delivery(tmp_path: Path) -> None:
    shop = Shop(url=f"sqlite:///{tmp_path}/shop.db", concurrency=1)
    async with shop.app:
        await shop.publish(5)

        per_second = await shop.drain_all(5)

    assert per_second > 0
    assert shop.left == 0
