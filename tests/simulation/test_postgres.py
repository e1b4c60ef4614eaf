"""The whole engine on PostgreSQL, with the single statements that do most of its work."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.command import hunt, kept_seeds, run_brief
from tests.simulation.run import run

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SEEDS = 20
WAYS = {
    *("append: statement", "append: steps"),
    *("claim: statement", "claim: look", "claim: steps"),
    *("settle: statement", "settle: steps"),
    *("report: statement", "report: steps"),
    "heartbeat: statement",
}
PLANTED = [one.name for one in BUGS if one.on == "postgres"]
FIRST = {
    "scans begin at a bound that is too high": 1,
    "one statement forgets an idempotency key": 3,
    "one statement claims by a gate that has changed": 29,
}
"""Seeds that find them, which are tried first; the others are found by seed 0."""
MOST_SEEDS = 10


def test_what_must_hold_holds_on_a_real_server_in_every_way() -> None:
    """Always the same seeds, so that a change is to blame; `make simulate` draws new ones.

    A way that is never taken is not simulated.
    """
    briefs = [run_brief(seed, store="postgres") for seed in range(SEEDS)]
    reports = [one.report for one in briefs if one.report]
    ways: Counter[str] = Counter()
    for one in briefs:
        ways.update(one.ways)

    assert not reports, "\n\n".join(reports)
    assert not {one for one in WAYS if not ways[one]}, ways


def test_seeds_that_once_found_something_find_nothing_now() -> None:
    briefs = [run_brief(seed, store="postgres") for seed in kept_seeds("postgres")]
    briefs += [
        run_brief(seed, store="postgres", is_crowded=True)
        for seed in kept_seeds("postgres", "crowds")
    ]
    reports = [one.report for one in briefs if one.report]

    assert briefs
    assert not reports, "\n\n".join(reports)


def test_a_seed_gives_the_same_trace_on_another_server() -> None:
    code = 'from tests.simulation.run import run; print(run(3, store="postgres").trace)'
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )

    assert done.stdout.strip() == run(3, store="postgres").trace


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    (bug,) = [one for one in BUGS if one.name == name]

    found = hunt(bug, most=MOST_SEEDS, first=FIRST.get(name, 0))

    assert found is not None
    assert found.violations[0].check.startswith("I"), "an invariant tells, not a run that breaks"


def test_five_bugs_are_planted_in_single_statements() -> None:
    assert len(PLANTED) >= 5
