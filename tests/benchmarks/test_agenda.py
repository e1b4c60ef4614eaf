"""The agenda: contenders take turns, and what is there already is not done again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.agenda import agenda
from benchmarks.contender import Workload
from benchmarks.plan import Plan
from benchmarks.results import Results
from benchmarks.study import Scale, engine_of, find_studies, turns
from tests.benchmarks.campaigns import CONTENDERS, a_rate, part

PLAN = Plan(
    name="try",
    rounds=3,
    sizes={Workload.DRAIN: 10},
    scale=Scale(rounds=1, large=10, sample=1, seconds=1.0),
    patience=1.0,
)


def order(results: Results, *only: str) -> list[str]:
    errands = agenda(PLAN, CONTENDERS, {}, only=only, results=results)
    return [errand.part.contender for errand in errands]


def test_contenders_take_turns_and_another_begins_each_round() -> None:
    assert order(Results()) == [
        *("raw_postgres", "pgqueuer", "redrive_postgres"),
        *("pgqueuer", "redrive_postgres", "raw_postgres"),
        *("redrive_postgres", "raw_postgres", "pgqueuer"),
    ]


def test_what_a_broken_off_run_has_is_not_done_again() -> None:
    results = Results()
    a_rate(results, part("raw_postgres"), 1.0, 2.0)
    a_rate(results, part("pgqueuer"), 1.0, 2.0)
    a_rate(results, part("redrive_postgres"), 1.0)

    assert order(results) == ["redrive_postgres", "redrive_postgres", "raw_postgres", "pgqueuer"]


def test_words_choose_a_part() -> None:
    assert order(Results(), "pgqueuer", "drain") == ["pgqueuer"] * 3
    assert order(Results(), "sqlite") == []


@pytest.mark.parametrize("module", find_studies())
def test_a_study_is_done_once_for_each_store(module: str) -> None:
    studies = find_studies()

    errands = agenda(PLAN, {}, studies, only=[module], results=Results())

    stores = [errand.part.contender for errand in errands if errand.part.workload == module]
    assert stores == [engine_of(arena) for arena in studies[module].arenas]


def test_a_quick_run_leaves_out_what_takes_long_to_fill() -> None:
    quick = replace(PLAN, is_quick=True)
    studies = find_studies()

    done = {
        errand.part.workload for errand in agenda(quick, {}, studies, only=[], results=Results())
    }

    assert done == {
        "bookkeeping",
        "destinations",
        "features",
        "held",
        "idle",
        "memory",
        "outbox",
        "projecting",
        "sending",
        "services",
        "serving",
        "storage",
        "tenants",
        "tracked",
    }


def test_the_points_of_a_study_take_turns_and_every_other_round_goes_backwards() -> None:
    points = {"small": 1, "large": 2}

    order = [name for name, _ in turns(points, 3)]

    assert order == ["small", "large", "large", "small", "small", "large"]
