"""A worker looks more often while it finds what nobody told it of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.worker.polling import Polling


def seconds(polling: Polling, finds: str) -> list[float]:
    """Return the interval after each look, which finds something (`x`) or not (`-`)."""
    intervals = []
    for one in finds:
        polling.heed(found=one == "x")
        intervals.append(polling.interval.total_seconds())
    return intervals


def test_an_idle_worker_looks_once_in_a_while() -> None:
    assert seconds(Polling(timedelta(seconds=1)), "---") == [1.0, 1.0, 1.0]


def test_a_look_that_finds_something_makes_the_next_one_quick() -> None:
    assert seconds(Polling(timedelta(seconds=1)), "x--x-------") == pytest.approx(
        [0.02, 0.04, 0.08, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    )


def test_it_is_never_slower_than_it_is_told() -> None:
    assert seconds(Polling(timedelta(milliseconds=5)), "x--") == [0.005, 0.005, 0.005]
