"""The stride of a reader: how many events at a time, and how long it rests."""

from __future__ import annotations

import pytest

from redrive.model.position import LOG_START
from redrive.store import LoggedEvent, LogPage
from redrive.worker.stride import Stride
from tests.conformance.world import an_event


def page(count: int = 0, *, is_end: bool = False) -> LogPage:
    events = tuple(LoggedEvent(LOG_START, an_event(), 1) for _ in range(count))
    return LogPage(events=events, reached=LOG_START, is_end=is_end)


def test_who_is_behind_takes_ever_more_up_to_a_bound() -> None:
    stride, limits = Stride(long_seconds=1.0), []

    for _ in range(7):
        limits.append(stride.limit(None))
        stride.heed(page(), took=0.5, rate=None)

    assert limits == [50, 100, 200, 400, 800, 1_000, 1_000]


def test_who_is_at_the_end_takes_as_many_as_before() -> None:
    stride = Stride(long_seconds=1.0)

    stride.heed(page(is_end=True), took=0.5, rate=None)

    assert stride.limit(None) == 50


def test_what_takes_too_long_is_halved_but_never_nothing() -> None:
    stride = Stride(long_seconds=1.0)

    for _ in range(9):
        stride.heed(page(), took=1.5, rate=None)

    assert stride.limit(None) == 1


def test_after_a_refused_commit_one_is_taken_by_itself() -> None:
    stride = Stride(long_seconds=1.0)

    stride.go_one_by_one()

    assert stride.limit(None) == 1


@pytest.mark.parametrize(("rate", "limit"), [(40.0, 10), (1.0, 1), (100_000.0, 50)])
def test_a_rate_is_taken_in_parts_of_a_second(rate: float, limit: int) -> None:
    assert Stride(long_seconds=1.0).limit(rate) == limit


def test_who_has_a_rate_rests_once_for_what_is_left_of_its_time() -> None:
    stride = Stride(long_seconds=10.0)

    stride.heed(page(10), took=0.25, rate=10.0)

    assert (stride.take_rest(), stride.take_rest()) == (0.75, 0.0)


def test_who_was_too_slow_for_its_rate_does_not_rest() -> None:
    stride = Stride(long_seconds=10.0)

    stride.heed(page(10), took=1.25, rate=10.0)

    assert stride.take_rest() == 0.0
