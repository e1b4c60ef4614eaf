"""Targets: met, missed or not measured, by what the results say and nothing else."""

from __future__ import annotations

import pytest

from benchmarks.contender import Run
from benchmarks.results import Results
from benchmarks.targets import TARGETS, Verdict, Word, judge
from tests.benchmarks.campaigns import a_rate, part


def verdict(results: Results, name: str) -> Verdict:
    (found,) = (one for one in judge(results) if one.name == name)
    return found


def test_nothing_is_claimed_that_was_not_measured() -> None:
    verdicts = judge(Results())

    assert {one.word for one in verdicts} == {Word.UNKNOWN}
    assert {one.found for one in verdicts} == {"-"}
    assert len(verdicts) == len(TARGETS)


def test_each_target_is_named_apart() -> None:
    named = [(target.name, target.wanted) for target in TARGETS]

    assert sorted(set(named)) == sorted(named)


@pytest.mark.parametrize(("rate", "word"), [(1500.0, Word.MET), (1499.0, Word.MISSED)])
def test_a_ratio_is_met_at_its_least(rate: float, word: Word) -> None:
    results = Results()
    a_rate(results, part("redrive_postgres"), rate, 1.0)
    a_rate(results, part("pgqueuer"), 1000.0)

    assert verdict(results, "PostgreSQL drain, of PgQueuer").word is word


@pytest.mark.parametrize(("latency", "word"), [(2.4, Word.MET), (2.5, Word.MISSED)])
def test_a_time_is_met_up_to_its_most(latency: float, word: Word) -> None:
    results = Results()
    results.add(part("redrive_postgres", "latency"), Run(figures={"p50_ms": latency}))
    results.add(part("pgqueuer", "latency"), Run(figures={"p50_ms": 2.0}))

    assert verdict(results, "PostgreSQL latency at 200/s, p50, of PgQueuer's").word is word


def test_growth_compares_points_of_one_study() -> None:
    results = Results()
    backlog = part("redrive_sqlite", "backlog", "growth")
    a_rate(results, backlog, 1000.0, point="10000")
    a_rate(results, backlog, 850.0, point="1000000")

    found = verdict(results, "drain at a backlog of a million, of ten thousand, sqlite")

    assert (found.found, found.word) == ("85%", Word.MISSED)


def test_growth_is_the_middle_of_what_the_rounds_say() -> None:
    """One lucky run at the small point, or a slow minute for both, decides nothing."""
    results = Results()
    finished = part("redrive_sqlite", "finished", "growth")
    a_rate(results, finished, 1000.0, 2000.0, 500.0, 1000.0, 1000.0, point="0")
    a_rate(results, finished, 910.0, 900.0, 470.0, 930.0, 920.0, point="1000000")

    found = verdict(results, "drain with a million finished rows, of none, sqlite")

    assert (found.found, found.word) == ("92%", Word.MET)


def test_each_figure_of_a_study_is_compared_with_itself() -> None:
    results = Results()
    of = part("redrive_sqlite", "destinations", "growth")
    results.add(of, Run(figures={"to_all": 1000.0, "published": 4000.0}, point="1"))
    results.add(of, Run(figures={"to_all": 500.0, "published": 2000.0}, point="10000"))

    drain = verdict(results, "drain, one event to all, 10,000 destinations, of 1, sqlite")
    publish = verdict(results, "publish, 10,000 destinations, of 1, sqlite")

    assert (drain.found, drain.word) == ("50%", Word.MET)
    assert (publish.found, publish.word) == ("50%", Word.MISSED)


def test_every_figure_a_target_asks_for_is_one_that_somebody_measures() -> None:
    """A target on a misspelt workload would never be measured, and nobody would notice."""
    asked: list[tuple[str, str, str]] = []

    class Asked(Results):
        def values(
            self, section: str, workload: str, contender: str, figure: str, point: str = ""
        ) -> list[float]:
            asked.append((section, workload, contender))
            return super().values(section, workload, contender, figure, point)

    judge(Asked())

    from benchmarks.contender import find_contenders  # noqa: PLC0415 - only this test needs them
    from benchmarks.study import engine_of, find_studies  # noqa: PLC0415

    measured = {
        (str(one.arena), workload.name.lower(), module)
        for module, one in find_contenders().items()
        for workload in one.workloads
    } | {
        (str(one.section), module, engine_of(arena))
        for module, one in find_studies().items()
        for arena in one.arenas
    }
    assert set(asked) <= measured
