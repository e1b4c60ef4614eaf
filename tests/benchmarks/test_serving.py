"""The study of publishing over HTTP, once and small; and what becomes of its targets."""

from __future__ import annotations

from pathlib import Path

import apsw

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import store_url
from benchmarks.results import Results
from benchmarks.studies.serving import STUDY, WAYS, bare
from benchmarks.study import Scale
from benchmarks.targets import Word, judge
from redrive import Redrive
from tests.benchmarks.campaigns import part

SMALL = Scale(rounds=1, large=100, sample=20, seconds=0.02, small=10)
EVENTS = 1 + 2 + 200 + 2_000
"""The least that each way publishes, first to warm up and then to be timed."""


async def test_both_servers_are_published_to_in_each_way(tmp_path: Path) -> None:
    place, results = Place(folder=tmp_path, url=""), Results()

    async for run in STUDY.measure(SMALL, Arena.SQLITE, place):
        results.add(part("redrive_sqlite", "serving", "promises"), run)

    judged = [one for one in judge(results) if one.word is not Word.UNKNOWN]
    assert [one.name.split(", of")[0] for one in judged] == [f"HTTP publish, {way}" for way in WAYS]
    async with Redrive(store_url(Arena.SQLITE, place, "serving_ours")) as app:
        stored = (await app.operations.status()).events
    rows = apsw.Connection(str(tmp_path / "serving_bare.db")).execute("SELECT count(*) FROM events")
    assert (stored, rows.get) == (EVENTS, EVENTS)


def test_it_is_judged_by_what_the_bare_endpoint_does_in_the_same_way() -> None:
    results = Results()
    of = part("redrive_sqlite", "serving", "promises")
    for point, rate in ((WAYS[2], 59.0), (bare(WAYS[2]), 100.0), (bare(WAYS[0]), 1.0)):
        results.add(of, Run(figures={"per_second": rate}, point=point))

    [verdict] = [one for one in judge(results) if one.word is not Word.UNKNOWN]

    assert (verdict.found, verdict.word) == ("59%", Word.MISSED)
