"""Handlers that never end: timed out, reported, and kept from harming the others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from tests.faults.machine import ROOT, Machine, on_each_store, until
from tests.scale import IS_LONG

MachineOf = Callable[[str], Machine]
BLOCKED_SECONDS = 60 if IS_LONG else 10
"""How long a handler blocks its worker, whose lease is shorter."""


@on_each_store
def test_an_async_handler_that_never_returns_is_timed_out_retried_and_exhausted(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("stuck")
    machine.publish([{"number": 1}], "thing.endless")

    worker = machine.start_worker()
    machine.until_settled()
    worker.send(signal.SIGTERM)

    (failed,) = machine.deliveries(Status.FAILED)
    assert failed.reason is FailureReason.EXHAUSTED
    assert failed.fault is not None
    assert failed.fault.error_class == "TimeoutError"
    assert failed.attempts == machine.journal("begun")[1] == 2
    assert worker.wait() == 0


@pytest.mark.parametrize("kind", ["deaf", "hung"])
def test_a_handler_that_cannot_be_ended_is_reported_settled_and_left_behind(
    machine_of: MachineOf, kind: str
) -> None:
    machine = machine_of("stuck")
    machine.publish([{"number": 1}], f"thing.{kind}")
    worker = machine.start_worker()
    machine.until_settled()

    machine.publish([{"number": number} for number in range(100, 120)], "thing.plain")
    machine.until_settled()
    worker.send(signal.SIGTERM)

    (failed,) = machine.deliveries(Status.FAILED)
    assert failed.fault is not None
    assert failed.fault.error_class == "TimeoutError"
    assert machine.of("plain").delivered == 20
    assert len(machine.pids()) == 1
    assert worker.wait() == 0


@pytest.mark.parametrize("kind", ["deaf", "hung"])
def test_a_worker_whose_places_are_all_stuck_ends_with_70(machine_of: MachineOf, kind: str) -> None:
    machine = machine_of("stuck")
    machine.publish([{"number": number} for number in range(12)], f"thing.{kind}")

    worker = machine.start_worker()

    assert worker.wait() == 70
    settled = [one for one in machine.deliveries(Status.FAILED) if one.fault is not None]
    assert {one.fault.error_class for one in settled if one.fault} == {"TimeoutError"}
    assert machine.of(kind).in_flight == 0


@on_each_store
def test_a_supervisor_replaces_workers_until_everything_stuck_is_settled(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("stuck")
    machine.publish([{"number": number} for number in range(20)], "thing.deaf")
    machine.publish([{"number": number} for number in range(100, 120)], "thing.plain")

    supervisor = machine.start_worker("--processes", "1")
    machine.until_settled()
    supervisor.send(signal.SIGTERM)

    assert machine.of("deaf").failed == 20
    assert machine.of("plain").delivered == 20
    assert {one.crashes for one in machine.deliveries(Status.FAILED)} == {0}
    assert len(machine.pids()) > 1
    assert supervisor.wait() == 0


def test_a_second_signal_ends_a_worker_whose_loop_is_blocked(machine_of: MachineOf) -> None:
    machine = machine_of("obstinate")
    machine.publish([{"number": 3, "is_blocker": True}])
    worker = machine.start_worker()
    machine.until_written("begun", 1)

    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)

    assert worker.wait() == 70


def test_a_second_signal_ends_a_worker_that_waits_in_c(machine_of: MachineOf) -> None:
    """Its main thread comes to no other step of Python, in which it could run a handler."""
    machine = machine_of("locked_up")
    machine.publish([{"number": 1, "holds_python": False}])
    (machine.folder / "go").touch()
    worker = machine.start_worker()
    machine.until_written("begun", 1)

    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)

    assert worker.wait() == 70


def test_a_worker_told_to_stop_whose_interpreter_stands_still_is_ended_by_the_system(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("locked_up")
    machine.publish([{"number": 1, "holds_python": True}])
    worker = machine.start_worker()
    machine.until_written("begun", 1)

    worker.send(signal.SIGTERM)
    until(lambda: "opping" in worker.output, what="it is stopping")
    (machine.folder / "go").touch()

    assert worker.wait() == -signal.SIGALRM


def test_no_second_signal_is_missed_whenever_it_comes() -> None:
    """A hundred processes and more, each told twice within moments."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.faults.twice", "120"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert told.stdout.split() == ["70"] * 120, told.stderr


@on_each_store
def test_a_handler_that_blocks_the_event_loop_beyond_its_lease_keeps_its_lease(
    machine_of: MachineOf,
) -> None:
    """The heartbeat does not share its loop, so nobody else takes the delivery."""
    machine = machine_of("sluggish")
    machine.publish([{"number": 1, "seconds": BLOCKED_SECONDS}])
    machine.start_worker()
    machine.until_written("begun", 1)
    machine.start_worker()
    machine.until_settled()

    assert machine.journal("begun") == machine.journal("done") == {1: 1}
    assert machine.of("sluggish").delivered == 1
    assert machine.figures().refused_settlements == 0
