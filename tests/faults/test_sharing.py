"""Several processes on one store: two workers, a publisher and the command line."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.machine import Machine, on_each_store, until
from tests.scale import IS_LONG

MachineOf = Callable[[str], Machine]
SECONDS = 60 if IS_LONG else 2


@pytest.mark.timeout(SECONDS + 240)
@on_each_store
def test_two_workers_a_publisher_and_the_command_line_never_find_the_store_locked(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("steady")
    machine.publish_numbers(1)
    workers = [machine.start_worker(), machine.start_worker()]
    publisher = machine.start("-m", "tests.faults.publisher")
    until((machine.folder / "acknowledged").exists, what="publishing")

    readings = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for command in (["status", "--json"], ["dlq", "list", "--json"]):
            reading = machine.start("-m", "redrive", *command, "--store", machine.store)
            reading.wait()
            readings.append(reading)
    publisher.kill()
    machine.until_settled()
    for worker in workers:
        worker.send(signal.SIGTERM)

    assert [worker.wait() for worker in workers] == [0, 0]
    assert [one.output for one in readings if one.process.returncode != 0] == []
    outputs = "".join(one.output for one in [*workers, publisher, *readings])
    assert "locked" not in outputs
    assert "store lost" not in outputs
    assert machine.of("steady").delivered == machine.figures().events
