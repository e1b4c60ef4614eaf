"""The study of the dashboard, once and small; and what becomes of its targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.history import History, fill_history
from benchmarks.measures.shop import store_url
from benchmarks.results import Results
from benchmarks.studies.dashboard import LISTENERS, STUDY, addresses, listeners
from benchmarks.study import Scale
from benchmarks.targets import Word, judge
from redrive import Redrive
from redrive.web.pages.table import PAGES
from tests.benchmarks.campaigns import part
from tests.servers.postgres import Database

SMALL = Scale(rounds=1, large=1_000, sample=20, seconds=0.1, small=10)


@pytest.fixture(params=[Arena.SQLITE, Arena.POSTGRES])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Arena, Place]]:
    if request.param is Arena.SQLITE:
        yield Arena.SQLITE, Place(folder=tmp_path)
        return
    database: Database = request.getfixturevalue("database")
    yield Arena.POSTGRES, Place(folder=tmp_path, url=database.url)
    database.execute("DROP SCHEMA dashboard CASCADE")


async def test_every_page_is_asked_for_and_many_listen(ground: tuple[Arena, Place]) -> None:
    arena, place = ground

    runs = {one.point: one.figures async for one in STUDY.measure(SMALL, arena, place)}

    async with Redrive(store_url(arena, place, "dashboard")) as app:
        figures, wrong = await app.operations.status(), await app.operations.recount()
    pages = {one.path for one in PAGES if one.method == "GET"}
    assert pages <= set(runs)
    assert {listeners(1), listeners(LISTENERS)} <= set(runs)
    assert (figures.letters.count, figures.events) == (1_001, 1_022)
    assert (len(figures.destinations), wrong) == (50 + 5, [])


async def test_a_page_that_nobody_asks_for_is_missed(tmp_path: Path) -> None:
    """What the study asks for has each page of the table, by the path in it."""
    history = History(letters=200, destinations=50)
    url = store_url(Arena.SQLITE, Place(folder=tmp_path), "dashboard")
    await fill_history(url, history)

    async with Redrive(url) as app:
        asked = await addresses(app.operations, history)

    assert {one.path for one in PAGES if one.method == "GET"} - set(asked) == set()


@pytest.mark.parametrize(("slowest", "word"), [(199.0, Word.MET), (201.0, Word.MISSED)])
def test_the_slowest_page_is_judged(slowest: float, word: Word) -> None:
    results = Results()
    of = part("redrive_sqlite", "dashboard", "promises")
    for point, value in (("/", 20.0), ("/audit", slowest)):
        results.add(of, Run(figures={"p95_ms": value}, point=point))

    verdicts = {one.name: one for one in judge(results) if one.word is not Word.UNKNOWN}

    assert {one.word for one in verdicts.values()} == {word}


@pytest.mark.parametrize(("cpu", "many", "word"), [(19.0, 1.1, Word.MET), (21.0, 1.3, Word.MISSED)])
def test_many_who_listen_are_judged_beside_one(cpu: float, many: float, word: Word) -> None:
    results = Results()
    of = part("redrive_postgres", "dashboard", "promises")
    for count, queries in ((1, 10.0), (LISTENERS, 10.0 * many)):
        figures = {"cpu_percent": cpu, "queries_per_second": queries}
        results.add(of, Run(figures=figures, point=listeners(count)))

    verdicts = [one for one in judge(results) if one.word is not Word.UNKNOWN]

    assert [one.word for one in verdicts] == [word, word]
