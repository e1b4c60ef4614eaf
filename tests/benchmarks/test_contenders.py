"""Contenders and studies: each module declares itself, without what it measures being installed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from benchmarks.contender import Arena, Role, Workload, find_contenders
from benchmarks.figures import FIGURES
from benchmarks.measures import Queue
from benchmarks.plan import FULL, QUICK
from benchmarks.study import find_studies

CONTENDERS = find_contenders()
STUDIES = find_studies()
VERSIONS = Path(__file__).parents[2] / "benchmarks" / "constraints.txt"


@pytest.mark.parametrize("module", CONTENDERS)
def test_a_contender_says_what_it_does(module: str) -> None:
    contender = CONTENDERS[module]

    assert contender.name
    assert contender.workloads
    assert set(contender.workloads) <= set(FULL.sizes)


@pytest.mark.parametrize(
    "module", [m for m, one in CONTENDERS.items() if Workload.DRAIN in one.workloads]
)
def test_a_queue_can_be_made_by_its_worker_process(module: str) -> None:
    assert issubclass(importlib.import_module(f"benchmarks.contenders.{module}").Queue, Queue)


@pytest.mark.parametrize("module", CONTENDERS)
def test_who_is_installed_for_the_benchmark_has_a_version(module: str) -> None:
    """Otherwise two runs compare different things."""
    lines = VERSIONS.read_text("utf-8").splitlines()
    pinned = {_plain(line.partition("==")[0]) for line in lines if "==" in line}

    needed = {_plain(one.partition("[")[0]) for one in CONTENDERS[module].requirements}

    assert needed <= pinned
    assert bool(needed) is (CONTENDERS[module].role is Role.PEER)


def test_each_arena_has_us_and_somebody_to_compare_with() -> None:
    for arena in Arena:
        roles = [one.role for one in CONTENDERS.values() if one.arena is arena]
        assert len(roles) > 1
        assert roles.count(Role.ENGINE) == (arena is not Arena.REDIS)


def test_a_quick_run_has_the_main_peers_and_nothing_the_whole_has_not() -> None:
    quick = {module for module, one in CONTENDERS.items() if one.is_quick}

    peers = {module for module in quick if CONTENDERS[module].role is Role.PEER}
    assert peers == {
        *("pgqueuer", "huey_sqlite", "dramatiq_redis", "tenacity_purgatory"),
        *("eventsourcing_sqlite", "eventsourcing_postgres"),
    }
    assert set(QUICK.sizes) <= set(FULL.sizes) == set(Workload)
    assert all(QUICK.sizes[one] <= FULL.sizes[one] for one in QUICK.sizes)
    assert QUICK.rounds >= 3


def test_a_quick_run_ends_within_ten_minutes() -> None:
    """Nothing is begun later than that, and what was begun is ended when it takes too long."""
    assert QUICK.longest + QUICK.patience <= 600


def test_studies_have_enough_rounds_for_a_median_and_enough_work_in_each() -> None:
    assert min(FULL.scale.rounds, QUICK.scale.rounds) >= 5
    assert FULL.scale.sample >= 40_000


@pytest.mark.parametrize("module", STUDIES)
def test_a_study_says_what_it_looks_at(module: str) -> None:
    study = STUDIES[module]

    assert study.title
    assert study.arenas
    assert set(study.figures) <= set(FIGURES)


def test_the_words_that_choose_a_part_are_not_ambiguous() -> None:
    sections = {str(one) for one in Arena} | {str(one.section) for one in STUDIES.values()}
    workloads = {one.name.lower() for one in Workload} | set(STUDIES) - {"features"}

    assert not sections & workloads
    assert not workloads & set(CONTENDERS)
    assert not sections & set(CONTENDERS)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
