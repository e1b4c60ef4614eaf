"""What becomes of a delivery whose worker is gone."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.model.delivery import SUSPECT_AFTER
from redrive.model.settlement import Failed, FailureReason, Requeued
from redrive.policies.recovery import is_in_doubt, recover
from redrive.store import Overdue
from tests.unit.policies.leases import NOON, overdue

HOUR = timedelta(hours=1)

instants = st.none() | st.timedeltas(timedelta(days=-30), timedelta(0)).map(
    lambda span: NOON + span
)
losses = st.builds(
    overdue,
    crashes=st.integers(0, 1_000),
    last_crash_at=instants,
    was_alone=st.booleans(),
    owner_is_alive=st.booleans(),
)


@given(losses)
def test_only_a_delivery_that_crashed_alone_is_condemned(lost: Overdue) -> None:
    recovery = recover(lost, now=NOON)

    assert isinstance(recovery, Failed) == (lost.was_alone and not lost.owner_is_alive)


@given(losses)
def test_no_recovery_waits_longer_than_five_minutes(lost: Overdue) -> None:
    recovery = recover(lost, now=NOON)

    if isinstance(recovery, Requeued):
        assert NOON <= recovery.when <= NOON + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("minutes", "is_alive", "is_open"),
    [(4, False, True), (5, False, False), (6, False, False), (4, True, False), (None, True, False)],
)
def test_whether_a_worker_lives_is_in_doubt_for_one_lease(
    minutes: int | None,
    is_alive: bool,  # noqa: FBT001 - a parameter
    is_open: bool,  # noqa: FBT001 - a parameter
) -> None:
    seen_at = None if minutes is None else NOON - timedelta(minutes=minutes)
    lost = overdue(owner_is_alive=is_alive, seen_at=seen_at, now=NOON)

    assert is_in_doubt(lost, lease=timedelta(minutes=5)) is is_open


@pytest.mark.parametrize("was_alone", [True, False])
def test_a_worker_that_only_lost_touch_counts_for_nothing(was_alone: bool) -> None:  # noqa: FBT001 - a parameter
    before = NOON - HOUR
    lost = overdue(crashes=1, last_crash_at=before, was_alone=was_alone, owner_is_alive=True)

    recovery = recover(lost, now=NOON)

    assert recovery == Requeued(when=NOON, crashes=1, last_crash_at=before)


@pytest.mark.parametrize(
    ("crashes", "seconds"), [(0, 1), (1, 5), (2, 25), (3, 125), (4, 300), (5, 300), (10_000, 300)]
)
def test_each_crash_is_counted_and_waited_for_longer(crashes: int, seconds: int) -> None:
    recovery = recover(overdue(crashes=crashes, last_crash_at=NOON - HOUR), now=NOON)

    assert recovery == Requeued(
        when=NOON + timedelta(seconds=seconds), crashes=crashes + 1, last_crash_at=NOON
    )


def test_a_crash_is_forgotten_after_three_days() -> None:
    lost = overdue(crashes=1, last_crash_at=NOON - 73 * HOUR)

    recovery = recover(lost, now=NOON)

    assert recovery == Requeued(when=NOON + timedelta(seconds=1), crashes=1, last_crash_at=NOON)


def test_a_crash_within_three_days_is_remembered() -> None:
    lost = overdue(crashes=1, last_crash_at=NOON - 72 * HOUR)

    recovery = recover(lost, now=NOON)

    assert isinstance(recovery, Requeued)
    assert recovery.crashes == 2


def test_a_crash_of_unknown_time_is_remembered() -> None:
    recovery = recover(overdue(crashes=1, last_crash_at=None), now=NOON)

    assert isinstance(recovery, Requeued)
    assert recovery.crashes == 2


def test_a_second_crash_soon_after_a_forgotten_one_makes_a_suspect() -> None:
    """The instant moves with every crash, or the old one would be forgotten again and again."""
    first = recover(overdue(crashes=1, last_crash_at=NOON - 73 * HOUR), now=NOON)
    assert isinstance(first, Requeued)

    lost = overdue(crashes=first.crashes, last_crash_at=first.last_crash_at)
    second = recover(lost, now=NOON + HOUR)

    assert isinstance(second, Requeued)
    assert second.crashes == SUSPECT_AFTER


def test_a_poison_pill_is_found_with_its_third_crash() -> None:
    lost = overdue()
    for _ in range(SUSPECT_AFTER):
        again = recover(lost, now=NOON)
        assert isinstance(again, Requeued)
        lost = overdue(crashes=again.crashes, last_crash_at=again.last_crash_at)

    alone = overdue(crashes=lost.crashes, last_crash_at=NOON, was_alone=True, worker="w7")
    recovery = recover(alone, now=NOON + HOUR)

    assert isinstance(recovery, Failed)
    assert recovery.reason is FailureReason.CRASH_LOOP
    assert "crashed 3 times" in recovery.fault.message
    assert "w7" in recovery.fault.message


def test_crash_loops_of_one_destination_are_one_group_whichever_workers_died() -> None:
    recoveries = [
        recover(overdue(crashes=crashes, was_alone=True, worker=worker), now=NOON)
        for crashes, worker in ((2, "blue-host-17"), (3, "green"))
    ]

    groups = {one.fault.group for one in recoveries if isinstance(one, Failed)}
    assert len(groups) == 1
    assert groups != {""}
