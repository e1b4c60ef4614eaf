"""Attention: what nobody claims, what is near its limit, and what is over it."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.model.retention import Keep
from redrive.operations.explain.diagnosis import diagnose
from redrive.policies.attention import (
    SILENT_AFTER,
    expiring,
    near_limit,
    orphans,
    overflow,
    stranded,
)
from redrive.store import (
    DestinationFigures,
    DueWork,
    Figures,
    Finding,
    LetterQuota,
    Level,
    Serving,
    WorkerFigures,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GREEN = DueWork(destination="billing", generation="green", count=3)


def worker(
    serving: Serving | None = None, *, silent_for: timedelta = timedelta(0)
) -> WorkerFigures:
    return WorkerFigures(id="w1", seen_at=NOW - silent_for, in_flight=0, serving=serving)


def figures(
    *destinations: DestinationFigures,
    workers: tuple[WorkerFigures, ...] = (),
    due: tuple[DueWork, ...] = (),
) -> Figures:
    return Figures(
        now=NOW,
        events=9,
        unrouted=0,
        refused_settlements=0,
        deleted=0,
        destinations=destinations,
        workers=workers,
        due=due,
    )


def warnings(found: Figures) -> list[Finding]:
    return [one for one in diagnose(found) if one.level is not Level.OK]


def hoard(keep: Keep, *, count: int, age: timedelta = timedelta(0)) -> LetterQuota:
    return LetterQuota(destination="billing", keep=keep, count=count, oldest=NOW - age, now=NOW)


@pytest.mark.parametrize(
    ("workers", "is_stranded"),
    [
        ((), False),
        ((worker(Serving(("billing",), ("green",))),), False),
        ((worker(Serving(("billing",), ("blue",))),), True),
        ((worker(Serving(("mailing",), ("green",))),), True),
        ((worker(Serving(("billing",), ("blue",))), worker()), False),
        (
            (
                worker(Serving(("billing",), ("green",)), silent_for=SILENT_AFTER),
                worker(Serving(("billing",), ("blue",))),
            ),
            True,
        ),
    ],
    ids=["nobody", "claimed", "other generation", "other destination", "unknown", "silent"],
)
def test_work_is_stranded_when_no_live_worker_claims_it(
    workers: tuple[WorkerFigures, ...], *, is_stranded: bool
) -> None:
    assert stranded([GREEN], workers, now=NOW) == ((GREEN,) if is_stranded else ())


def test_a_destination_is_orphaned_when_it_waits_for_nobody() -> None:
    alive = (worker(Serving(("mailing",), ("default",))),)
    waiting = DestinationFigures(name="billing", patterns=("*",), pending=2)
    removed = DestinationFigures(name="old", patterns=("*",), pending=1, is_removed=True)
    empty = DestinationFigures(name="empty", patterns=("*",), failed=3, is_removed=True)
    served = DestinationFigures(name="mailing", patterns=("*",), pending=9)

    found = orphans(figures(waiting, removed, empty, served, workers=alive))

    assert [one.name for one in found] == ["billing", "old"]
    assert orphans(figures(waiting, removed)) == (removed,)


def test_an_orphan_is_told_once_and_not_as_late_too() -> None:
    alive = (worker(Serving(("mailing",), ("default",))),)
    late = NOW - timedelta(hours=1)
    waiting = DestinationFigures(name="billing", patterns=("*",), pending=3, oldest_due=late)

    [finding] = warnings(figures(waiting, workers=alive, due=(GREEN,)))

    assert finding.what.startswith("billing is orphaned: 3 deliveries held")
    assert "redrive destination move billing" in finding.advice


def test_a_stranded_generation_is_a_finding_with_what_to_do() -> None:
    alive = (worker(Serving(("billing",), ("default",))),)
    waiting = DestinationFigures(name="billing", patterns=("*",), pending=3)

    [finding] = warnings(figures(waiting, workers=alive, due=(GREEN,)))

    assert finding.what.startswith("3 deliveries to billing of generation 'green' due")
    assert "REDRIVE_GENERATIONS=green" in finding.advice


@pytest.mark.parametrize(
    ("keep", "count", "age", "is_near"),
    [
        (Keep(count=100), 79, timedelta(0), False),
        (Keep(count=100), 80, timedelta(0), True),
        (Keep(age="10d"), 1, timedelta(days=8) - timedelta(seconds=1), False),
        (Keep(age="10d"), 1, timedelta(days=8), True),
        (Keep(age="10d", count=100), 90, timedelta(0), True),
    ],
)
def test_a_limit_is_near_from_four_fifths_on(
    keep: Keep, count: int, age: timedelta, *, is_near: bool
) -> None:
    near = near_limit(keep, count=count, oldest=NOW - age, now=NOW)

    assert (near is not None) is is_near


def test_a_limit_is_not_near_without_a_dead_letter() -> None:
    assert near_limit(Keep(age="10d", count=9), count=0, oldest=None, now=NOW) is None


def test_what_is_over_a_limit_is_what_goes() -> None:
    old = timedelta(days=10)

    assert overflow(hoard(Keep(count=5), count=7)) == 2
    assert overflow(hoard(Keep(count=5), count=4)) == 0
    assert overflow(hoard(Keep(age="10d"), count=4)) == 0
    assert expiring(hoard(Keep(age="10d"), count=1, age=old)) == NOW - old
    assert expiring(hoard(Keep(age="10d"), count=1, age=old - timedelta(seconds=1))) is None
    assert expiring(hoard(Keep(count=1), count=1, age=old)) is None


def test_a_limit_that_is_near_is_a_finding() -> None:
    destination = DestinationFigures(
        name="billing", patterns=("*",), failed=9, keep=Keep(count=10), oldest_failed=NOW
    )

    told = [one.what for one in warnings(figures(destination))]

    assert any("near it: 9 of 10 dead letters" in one for one in told)
