"""A full disk: said in one sentence, nothing stored by halves, and work goes on when it is over."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import StoreFullError
from redrive.model.delivery import Status
from tests.faults.disk import Disk
from tests.faults.machine import Machine, until

MachineOf = Callable[[str], Machine]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_publish_on_a_full_disk_is_refused_whole_and_works_again_afterwards(
    machine_of: MachineOf, disk: Disk
) -> None:
    machine = machine_of("steady")
    mounted = disk.mount()
    machine.publish_numbers(10)

    disk.fill()
    with pytest.raises(StoreFullError, match=r"^The disk under .* is full; nothing .* stored"):
        machine.publish_numbers(200)
    stored_meanwhile = machine.figures().events
    disk.free()
    machine.publish_numbers(5)
    mounted.unregister()

    assert stored_meanwhile == 10
    assert machine.figures().events == 15


def test_workers_outlive_a_full_disk_and_blame_no_delivery(
    machine_of: MachineOf, disk: Disk
) -> None:
    machine = machine_of("slow")
    machine.publish([{"number": number, "seconds": 2.0} for number in range(10)])
    carrying = machine.start_worker(REDRIVE_TEST_DISK="full on demand")
    machine.until_written("begun", 10, within=10)
    idle = machine.start_worker(REDRIVE_TEST_DISK="full on demand")
    machine.until_workers(2, within=10)

    disk.fill()
    until(lambda: "store lost" in carrying.output, within=10, what="the worker notices")
    machine.until_written("done", 10, within=10)
    until(machine.leases_have_run_out, within=10, what="the leases have run out")
    disk.free()
    machine.until_settled(within=20)
    for worker in (carrying, idle):
        worker.send(signal.SIGTERM)

    assert [worker.wait(within=10) for worker in (carrying, idle)] == [0, 0]
    assert "store back" in carrying.output
    assert machine.of("slow").delivered == 10
    assert [one.crashes for one in machine.deliveries(Status.DELIVERED)] == [0] * 10
