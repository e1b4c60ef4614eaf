"""The study of what is promised in seconds, once and small; and what becomes of its targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contender import Arena, Place, Run
from benchmarks.results import Results
from benchmarks.studies.bookkeeping import STUDY
from benchmarks.study import Scale
from benchmarks.targets import Word, judge
from tests.benchmarks.campaigns import part

SMALL = Scale(rounds=1, large=100, sample=20, seconds=0.02, small=10)


async def test_each_promise_is_measured_and_has_a_target(tmp_path: Path) -> None:
    results = Results()

    async for run in STUDY.measure(SMALL, Arena.SQLITE, Place(folder=tmp_path, url="")):
        results.add(part("redrive_sqlite", "bookkeeping", "promises"), run)

    measured = [one.name for one in judge(results) if one.word is not Word.UNKNOWN]
    assert measured == [
        "a retry, p99, sqlite",
        "a dead letter, p99, sqlite",
        "publish to handler, 1,000 tenants, p50, sqlite",
        "publish to handler, 1,000 tenants, p95, sqlite",
        "a healed destination, recovery, sqlite",
    ]


@pytest.mark.parametrize(("took", "word"), [(4.0, Word.MET), (5.1, Word.MISSED)])
def test_a_promise_is_kept_or_not_whatever_others_take(took: float, word: Word) -> None:
    results = Results()
    run = Run(figures={"p99_ms": took}, point="a dead letter")
    results.add(part("redrive_postgres", "bookkeeping", "promises"), run)

    [verdict] = [one for one in judge(results) if one.word is not Word.UNKNOWN]

    assert (verdict.wanted, verdict.word) == ("less than 5 ms", word)
