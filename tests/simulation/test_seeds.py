"""The whole engine, seed by seed: whatever goes wrong, what must hold holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.command import kept_seeds, main, run_brief
from tests.simulation.plan import draw
from tests.simulation.run import run

ROOT = Path(__file__).parents[2]
SHARES = 25
SEEDS_PER_SHARE = 10
PROJECTING_SEEDS = 3
TRACKING_SEEDS = 6
GATEWAY_SEEDS = 10
CROWDED_SEEDS = (0, 2, 3, 4)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", range(SHARES))
def test_what_must_hold_holds(share: int) -> None:
    """Always the same seeds, so that a change is to blame; `make simulate` draws new ones.

    As many again are always the same in `make prove`.
    """
    first = share * SEEDS_PER_SHARE
    reports = [
        brief.report
        for seed in range(first, first + SEEDS_PER_SHARE)
        if (brief := run_brief(seed)).report
    ]

    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(2))
def test_read_models_equal_the_log_whatever_happens(share: int) -> None:
    """Few here; `make prove` runs as many as there is time for."""
    first = share * PROJECTING_SEEDS
    reports = [
        brief.report
        for seed in range(first + 1, first + PROJECTING_SEEDS + 1)
        if (brief := run_brief(seed, projects=True)).report
    ]

    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(2))
def test_what_was_tracked_adds_up_whatever_happens(share: int) -> None:
    """Few here; `make prove` runs many."""
    first = share * TRACKING_SEEDS
    reports = [
        brief.report
        for seed in range(first, first + TRACKING_SEEDS)
        if (brief := run_brief(seed, tracks=True)).report
    ]

    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
def test_services_and_rules_are_gone_by_while_people_change_them() -> None:
    """Few here; `make simulate GATEWAY=1` and `make prove` run many."""
    briefs = [run_brief(seed, has_services=True) for seed in range(1, GATEWAY_SEEDS + 1)]
    reports = [one.report for one in briefs if one.report]

    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
def test_what_must_hold_holds_among_dozens_of_destinations() -> None:
    """Few here, because each takes long; `make simulate CROWDS=1` runs as many as there is time."""
    briefs = [run_brief(seed, is_crowded=True) for seed in CROWDED_SEEDS]
    reports = [one.report for one in briefs if one.report]

    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
def test_seeds_that_once_found_something_find_nothing_now() -> None:
    reports = [brief.report for seed in kept_seeds() if (brief := run_brief(seed)).report]
    reports += [
        brief.report
        for seed in kept_seeds("tracking")
        if (brief := run_brief(seed, tracks=True)).report
    ]
    reports += [
        brief.report
        for seed in kept_seeds("gateway")
        if (brief := run_brief(seed, has_services=True)).report
    ]

    assert kept_seeds()
    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [3, 8], ids=["memory", "sqlite"])
def test_a_seed_gives_the_same_trace_in_every_process(seed: int) -> None:
    """A failure that cannot be repeated cannot be understood."""
    code = f"from tests.simulation.run import run; print(run({seed}).trace)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }

    assert traces == {run(seed).trace}


def test_another_seed_is_another_story() -> None:
    assert draw(1) != draw(2)
    assert run(1).trace != run(2).trace


def test_a_failure_says_all_that_is_needed_to_repeat_it() -> None:
    report = run(1).report()

    assert "run it again with: make simulate SEED=1" in report
    assert '"lost_requests"' in report or '"destinations"' in report


def test_a_world_that_projects_is_refused_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["simulation", "--projections", "--store", "postgres", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", given)

    with pytest.raises(SystemExit):
        main()

    assert "leave out --store" in capsys.readouterr().err
