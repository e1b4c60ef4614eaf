"""SIGSTOP past the lease, then SIGCONT: a worker that comes back from the dead."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from redrive.model.delivery import Status
from tests.faults.machine import Machine, on_each_store, until

MachineOf = Callable[[str], Machine]


@on_each_store
def test_a_worker_paused_past_its_lease_cannot_settle(machine_of: MachineOf) -> None:
    machine = machine_of("slow")
    machine.publish([{"number": 1, "seconds": 4}])  # long enough to be frozen in the middle
    zombie = machine.start_worker()
    machine.until_written("begun", 1)

    machine.freeze(zombie)
    other = machine.start_worker()
    machine.until_settled()
    zombie.send(signal.SIGCONT)
    until(lambda: machine.journal("done")[1] == 2, what="the zombie ended its handler")
    until(lambda: machine.figures().refused_settlements >= 1, what="refused")

    assert machine.of("slow").delivered == 1
    for worker in (zombie, other):
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_pause_of_all_workers_is_no_crash(machine_of: MachineOf, count: int) -> None:
    machine = machine_of("slow")
    workers = [machine.start_worker() for _ in range(count)]
    machine.until_workers(count)
    machine.publish([{"number": number, "seconds": 6.0} for number in range(10)])
    machine.until_written("begun", 10)

    for worker in workers:
        worker.send(signal.SIGSTOP)
    until(machine.leases_have_run_out, what="the leases have run out")
    for worker in reversed(workers):
        worker.send(signal.SIGCONT)
    machine.until_settled()

    assert machine.of("slow").delivered == 10
    assert [one.crashes for one in machine.deliveries(Status.DELIVERED)] == [0] * 10


def test_a_worker_that_was_only_frozen_accuses_no_handler(machine_of: MachineOf) -> None:
    """Nor does it end itself: its event loop stood still because everything did."""
    machine = machine_of("watched")
    machine.publish([{"number": 1, "is_waiting": True}])
    worker = machine.start_worker()
    machine.until_written("begun", 1)

    machine.freeze(worker)
    until(machine.leases_have_run_out, what="its lease has run out")
    worker.send(signal.SIGCONT)
    machine.until_settled()
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert "wedged" not in worker.output
