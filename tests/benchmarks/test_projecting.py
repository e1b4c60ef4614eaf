"""The study of a read model, once and small; and what becomes of its target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks.contender import Arena, Place, Run, Workload, find_contender
from benchmarks.results import Results
from benchmarks.studies.projecting import (
    APPEND,
    EACH,
    EACH_AGAIN,
    EACH_BARE,
    LISTS,
    LISTS_AGAIN,
    LISTS_BARE,
    STUDY,
)
from benchmarks.study import Scale
from benchmarks.targets import Word, judge
from tests.benchmarks.campaigns import part
from tests.servers.postgres import Database

SMALL = Scale(rounds=1, large=100, sample=30, seconds=0.02, small=10)


@pytest.fixture(params=[Arena.SQLITE, Arena.POSTGRES])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Arena, Place]]:
    if request.param is Arena.SQLITE:
        yield Arena.SQLITE, Place(folder=tmp_path)
        return
    database: Database = request.getfixturevalue("database")
    yield Arena.POSTGRES, Place(folder=tmp_path, url=database.url)
    database.execute("DROP SCHEMA projecting_each_0, projecting_lists_1 CASCADE")
    database.execute("DROP TABLE paid")


async def test_each_way_is_measured(ground: tuple[Arena, Place]) -> None:
    runs = [one async for one in STUDY.measure(SMALL, *ground)]

    points = [APPEND, EACH, EACH_AGAIN, APPEND, LISTS, LISTS_AGAIN, EACH_BARE, LISTS_BARE]
    assert [one.point for one in runs] == points
    assert all(one.figures["per_second"] > 0 for one in runs)


@pytest.mark.parametrize(("ours", "word"), [(61.0, Word.MET), (59.0, Word.MISSED)])
def test_what_is_projected_is_measured_by_the_driver_alone(ours: float, word: Word) -> None:
    results = Results()
    for point, value in ((EACH, ours), (EACH_BARE, 100.0)):
        run = Run(figures={"per_second": value}, point=point)
        results.add(part("redrive_postgres", "projecting", "features"), run)

    [verdict] = [one for one in judge(results) if one.word is not Word.UNKNOWN]

    assert (verdict.wanted, verdict.word) == ("at least 60%", word)


def test_what_is_projected_is_measured_by_a_library_that_goes_one_by_one() -> None:
    results = Results()
    for contender, workload, value in (
        ("redrive_sqlite", "project", 101.0),
        ("redrive_sqlite", "project_lists", 99.0),
        ("eventsourcing_sqlite", "project", 10.0),
    ):
        run = Run(figures={"per_second": value})
        results.add(part(contender, workload, "sqlite"), run)

    found = {one.name: one.word for one in judge(results) if one.word is not Word.UNKNOWN}

    assert found == {
        "project, an upsert for each, of eventsourcing, sqlite": Word.MET,
        "project, in lists, of eventsourcing, sqlite": Word.MISSED,
    }


@pytest.fixture(params=["redrive_sqlite", "redrive_postgres"])
def log_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Place]]:
    module = request.param
    if module == "redrive_sqlite":
        yield module, Place(folder=tmp_path)
        return
    database: Database = request.getfixturevalue("database")
    name = f"log_{uuid4().hex}"
    database.execute(f"CREATE DATABASE {name}")
    yield module, Place(folder=tmp_path, url=database.url.rpartition("/")[0] + f"/{name}")
    database.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("workload", [Workload.APPEND, Workload.PROJECT, Workload.PROJECT_LISTS])
def test_a_log_is_appended_to_and_projected(
    log_place: tuple[str, Place], workload: Workload
) -> None:
    module, place = log_place

    run = find_contender(module).workloads[workload](20, place)

    assert run.figures["per_second"] > 0
