"""Diagnosis: what the figures say, and what to do about it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.model.gate import Gate, GateFigures, Hold, Open, Pause
from redrive.model.limits import Limits
from redrive.model.position import LOG_START
from redrive.operations.explain.diagnosis import diagnose
from redrive.store import (
    Checkpoint,
    DestinationFigures,
    Figures,
    Finding,
    LetterFigures,
    Level,
    ProjectionFigures,
    Topic,
    WorkerFigures,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def figures(
    *destinations: DestinationFigures,
    workers: tuple[WorkerFigures, ...] = (),
    unrouted: int = 0,
    letters: LetterFigures | None = None,
) -> Figures:
    return Figures(
        now=NOW,
        events=10,
        unrouted=unrouted,
        refused_settlements=0,
        deleted=0,
        destinations=destinations,
        workers=workers,
        letters=letters or LetterFigures(),
    )


def billing(*, due_for: timedelta | None = None, **counts: Any) -> DestinationFigures:  # noqa: ANN401 - of the figures
    oldest = None if due_for is None else NOW - due_for
    return DestinationFigures(name="billing", patterns=("*",), oldest_due=oldest, **counts)


def worker(silent_for: timedelta = timedelta(0), *, in_flight: int = 0) -> WorkerFigures:
    return WorkerFigures(id="w1", seen_at=NOW - silent_for, in_flight=in_flight)


def gate(hold: Hold | None = None, **state: Any) -> GateFigures:  # noqa: ANN401 - of a Gate
    return GateFigures(
        destination="billing", at=NOW, gate=Gate(**state), limits=Limits(), hold=hold
    )


def serious(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is not Level.OK]


def test_a_quiet_system_is_well() -> None:
    assert serious(diagnose(figures())) == []
    assert serious(diagnose(figures(billing(delivered=5), workers=(worker(),)))) == []


@pytest.mark.parametrize(
    ("due_for", "level"),
    [(timedelta(seconds=5), Level.WARNING), (timedelta(minutes=5), Level.ERROR)],
)
def test_due_work_without_a_worker_grows_serious(due_for: timedelta, level: Level) -> None:
    """A worker that restarts leaves a gap of seconds, which is no reason to wake anybody."""
    (finding,) = serious(diagnose(figures(billing(pending=1, due_for=due_for))))

    assert finding.level is level
    assert "no worker is alive" in finding.what
    assert "redrive worker" in finding.advice


def test_a_worker_not_heard_of_for_a_minute_is_gone() -> None:
    found = diagnose(
        figures(billing(due_for=timedelta(minutes=5)), workers=(worker(timedelta(minutes=2)),))
    )

    assert [finding.level for finding in serious(found)] == [Level.ERROR]


def test_deliveries_in_the_hands_of_a_lost_worker_are_told() -> None:
    lost = worker(timedelta(minutes=2), in_flight=3)

    (finding,) = serious(diagnose(figures(workers=(lost,))))

    assert finding.what == "Nothing was heard for 2 min of worker w1, with 3 deliveries in flight."
    assert "Any live worker takes them back." in finding.advice


def test_leases_that_ran_out_are_told() -> None:
    (finding,) = serious(diagnose(figures(workers=(worker(),)), overdue=2))

    assert finding.what == "2 leases have run out."


def test_a_destination_nobody_serves_is_told_apart_from_a_slow_one() -> None:
    late = timedelta(minutes=10)

    (stranded,) = serious(diagnose(figures(billing(due_for=late), workers=(worker(),))))
    (slow,) = serious(diagnose(figures(billing(due_for=late, in_flight=9), workers=(worker(),))))

    assert "generation" in stranded.advice
    assert "concurrency" in slow.advice


def test_a_pause_is_told_with_who_and_why_and_not_as_lateness() -> None:
    pause = Pause(by="ann", why="they migrate", at=NOW - timedelta(hours=2))
    held = billing(due_for=timedelta(hours=1), pending=3)

    (finding,) = serious(
        diagnose(figures(held, workers=(worker(),)), [gate(Hold.PAUSED, pause=pause)])
    )

    assert finding.level is Level.WARNING
    assert finding.what == (
        "billing was paused by ann 2 h ago, because: they migrate. 3 deliveries wait."
    )
    assert "redrive destination resume billing" in finding.advice


@pytest.mark.parametrize(
    ("until", "said"),
    [
        (NOW + timedelta(minutes=3), "is open; the next try is in 3 min."),
        (None, "is open, until somebody resets it."),
    ],
)
def test_an_open_breaker_is_told_and_not_as_lateness(until: datetime | None, said: str) -> None:
    breaker = Open(generation=1, since=NOW, until=until)
    held = billing(due_for=timedelta(hours=1), pending=1)

    (finding,) = serious(
        diagnose(figures(held, workers=(worker(),)), [gate(Hold.BREAKER_OPEN, breaker=breaker)])
    )

    assert finding.what == f"The breaker of billing {said} 1 delivery waits."
    assert "redrive breaker reset billing" in finding.advice


def test_a_destination_behind_its_limits_is_told_which_one() -> None:
    behind = figures(billing(due_for=timedelta(minutes=10), pending=9), workers=(worker(),))

    (finding,) = serious(diagnose(behind, [gate(Hold.RATE)]))

    assert finding.what.startswith("billing is behind")
    assert "What holds it back now: rate limit" in finding.advice


def test_dead_letters_are_counted_by_destination() -> None:
    (finding,) = serious(diagnose(figures(billing(failed=1_200))))

    assert finding.level is Level.WARNING
    assert finding.what == "1,200 dead letters wait for a person (billing 1,200)."


def test_neglected_dead_letters_are_told() -> None:
    said = []
    for age in (timedelta(days=7), timedelta(days=7, seconds=1)):
        letters = LetterFigures(count=2, oldest=NOW - age)
        (finding,) = serious(diagnose(figures(billing(failed=2), letters=letters)))
        said.append(finding.what.partition("(billing 2)")[2])

    assert said == [".", ", some for more than 7 days."]


def test_a_key_held_by_a_dead_letter_is_told() -> None:
    held = serious(diagnose(figures(billing(failed=1, pending=4, behind=4))))
    moving = serious(diagnose(figures(billing(pending=4, behind=4))))

    assert held[1].what == "billing keeps 4 deliveries waiting behind others of their key."
    assert moving == []


def test_a_finding_says_what_it_is_about_so_that_a_page_can_offer_the_next_step() -> None:
    late = figures(
        billing(pending=2, behind=1, failed=1, due_for=timedelta(hours=1)), workers=(worker(),)
    )
    paused = gate(Hold.PAUSED, pause=Pause(by="ann", why="", at=NOW))
    broken = gate(Hold.BREAKER_OPEN, breaker=Open(generation=1, since=NOW))
    nobody = figures(billing(pending=1, due_for=timedelta(hours=1)))

    def topics(found: Sequence[Finding]) -> set[tuple[Topic | None, str]]:
        return {(one.topic, one.name) for one in serious(found)}

    lane, letters = (Topic.DESTINATION, "billing"), (Topic.DEAD_LETTERS, "")
    assert topics(diagnose(late)) == {lane, letters}
    assert topics(diagnose(late, [paused])) == {(Topic.PAUSE, "billing"), lane, letters}
    assert topics(diagnose(late, [broken])) == {(Topic.BREAKER, "billing"), lane, letters}
    assert topics(diagnose(nobody)) == {(Topic.WORKERS, "")}


def test_events_nobody_wants_are_told() -> None:
    (finding,) = serious(diagnose(figures(unrouted=1)))

    assert finding.what.startswith("1 event is wanted by nobody;")


def test_events_that_projections_may_read_are_no_finding() -> None:
    reader = orders(behind=0, waited=timedelta(0), silent_for=timedelta(0))

    assert serious(diagnose(figures(unrouted=1), projections=[reader])) == []


def test_a_clock_that_was_set_back_is_an_error() -> None:
    (finding,) = serious(diagnose(figures(workers=(worker(timedelta(hours=-1)),))))

    assert finding.level is Level.ERROR
    assert "clock" in finding.what


def orders(*, behind: int, waited: timedelta, silent_for: timedelta) -> ProjectionFigures:
    return ProjectionFigures(
        checkpoint=Checkpoint(projection="orders", began=LOG_START, position=LOG_START),
        now=NOW,
        lag={"order.paid": behind} if behind else {},
        is_at_least=False,
        oldest_at=NOW - waited if behind else None,
        handed_over=0,
        parked_keys=0,
        seen_at=NOW - silent_for,
    )


@pytest.mark.parametrize(
    ("behind", "waited", "silent_for", "says"),
    [
        (0, 0, 86_400, ""),
        (3, 5, 1, ""),
        (3, 5, 120, "3 events behind, and no live worker reads for it"),
        (3, 300, 1, "has been behind for"),
    ],
)
def test_a_projection_that_falls_behind_is_told_of(
    behind: int, waited: int, silent_for: int, says: str
) -> None:
    projection = orders(
        behind=behind,
        waited=timedelta(seconds=waited),
        silent_for=timedelta(seconds=silent_for),
    )

    found = serious(diagnose(figures(), projections=[projection]))

    assert [says in one.what for one in found] == [True] * bool(says)
