"""Vitals: when a worker counts as alive and as ready, by its facts and its loop's ticks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.observer import (
    Fact,
    StoreBack,
    StoreLost,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from redrive.testing import FakeClock
from redrive.worker.health import Vitals

STARTED = WorkerStarted(worker="w", destinations=("billing",), concurrency=9)
STOPPING = WorkerStopping(worker="w", carrying=3)
STOPPED = WorkerStopped(worker="w", released=0)
LOST = StoreLost(worker="w", error="secret://password@host")
READ_ONLY = StoreLost(worker="w", error="secret://password@host", trouble="it is read-only")
BACK = StoreBack(worker="w")


def vitals_after(*facts: Fact, clock: FakeClock | None = None) -> Vitals:
    minute = timedelta(minutes=1)
    vitals = Vitals(worker="w", clock=clock or FakeClock(), longest_silence=minute)
    for fact in facts:
        vitals.notice(fact)
    return vitals


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], ["the worker has not started yet"]),
        ([STARTED], []),
        ([STARTED, LOST], ["the store does not answer; the log says why"]),
        ([STARTED, READ_ONLY], ["it is read-only; the log says why"]),
        ([STARTED, LOST, BACK], []),
        ([STARTED, STOPPING], ["the worker is stopping"]),
        ([STARTED, STOPPING, STOPPED], ["the worker has stopped"]),
        ([STARTED, StoreLost(worker="other", error="")], []),
        ([STARTED, WorkerStopping(worker="other", carrying=0)], []),
    ],
    ids=[
        "new",
        "started",
        "lost",
        "read-only",
        "back",
        "stopping",
        "stopped",
        "other-lost",
        "other-stopping",
    ],
)
def test_a_worker_is_ready_unless_something_is_in_the_way(
    facts: list[Fact], expected: list[str]
) -> None:
    assert vitals_after(*facts).hindrances() == expected


def test_a_worker_that_was_told_to_stop_is_not_ready_before_it_gets_to_it() -> None:
    vitals = vitals_after(STARTED)

    vitals.leave()

    assert vitals.hindrances() == ["the worker is stopping"]


def test_a_loop_that_stands_still_for_long_is_neither_alive_nor_ready() -> None:
    clock = FakeClock()
    vitals = vitals_after(STARTED, clock=clock)

    clock.advance("60s")
    assert vitals.is_alive
    clock.advance("1s")

    assert not vitals.is_alive
    assert vitals.hindrances() == ["the event loop has been blocked for 61 s"]


def test_a_loop_that_is_heard_of_again_is_alive_again() -> None:
    clock = FakeClock()
    vitals = vitals_after(STARTED, clock=clock)
    clock.advance("2m")

    vitals.tick()

    assert vitals.is_alive
    assert vitals.silence == 0
