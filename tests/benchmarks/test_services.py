"""The study of services, once and small: who gets what, and what is told of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import store_url
from benchmarks.results import Results
from benchmarks.studies.services import STUDY
from benchmarks.study import Scale
from benchmarks.targets import Word, judge
from redrive import Redrive
from tests.benchmarks.campaigns import part

# Of few, all may be delivered before anybody has seen the first.
SMALL = Scale(rounds=1, large=20_000, sample=4_000, seconds=0.05, small=200)
OF = part("redrive_sqlite", "services", "growth")


async def test_each_service_gets_the_events_of_its_tenant(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, url="")

    runs = [run async for run in STUDY.measure(SMALL, Arena.SQLITE, place)]

    assert [run.point for run in runs] == ["1", "200"]
    assert all(set(run.figures) == set(STUDY.figures) for run in runs)
    assert all(value > 0 for run in runs for value in run.figures.values())
    async with Redrive(store_url(Arena.SQLITE, place, "services_200_1")) as app:
        figures = await app.operations.status()
        [rule] = await app.operations.rules(name="r0")
    delivered = {one.name: one.delivered for one in figures.destinations}
    # Five each, and one more by each change of a rule.
    assert delivered == {**{f"s{number}": 5 for number in range(200)}, "s0": 7}
    assert rule.version == 3


def test_many_services_are_judged_by_one() -> None:
    results = Results()
    for point, rate in (("1", 100.0), ("10000", 49.0)):
        figures = {"per_second": rate, "published": rate, "change_ms": 99.0, "cpu_percent": 2.0}
        results.add(OF, Run(figures=figures, point=point))

    verdicts = {one.name: one.word for one in judge(results) if one.word is not Word.UNKNOWN}

    assert verdicts == {
        "drain, 10,000 services, of 1, sqlite": Word.MISSED,
        "publish, 10,000 services, of 1, sqlite": Word.MISSED,
        "one rule of 10,000 changes, sqlite": Word.MET,
        "an idle worker with 10,000 services, sqlite": Word.MISSED,
    }
