"""Several processes on one store: two workers, a publisher, a server and the command line."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.clients import publishing, start_server
from tests.faults.machine import Machine, on_each_store, until
from tests.scale import IS_LONG

MachineOf = Callable[[str], Machine]
SECONDS = 60 if IS_LONG else 2
CLIENTS = 10


@pytest.mark.timeout(SECONDS + 240)
@on_each_store
def test_workers_publishers_a_server_and_the_command_line_never_find_the_store_locked(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("steady")
    machine.publish_numbers(1)
    workers = [machine.start_worker(), machine.start_worker()]
    publisher = machine.start("-m", "tests.faults.publisher")
    until((machine.folder / "acknowledged").exists, what="publishing")

    server, place = start_server(machine)

    readings = []
    with publishing(place, clients=CLIENTS) as clients:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for command in (["status", "--json"], ["dlq", "list", "--json"]):
                reading = machine.start("-m", "redrive", *command, "--store", machine.store)
                reading.wait()
                readings.append(reading)
    publisher.kill()
    machine.until_settled()
    for child in (*workers, server):
        child.send(signal.SIGTERM)

    assert [child.wait() for child in (*workers, server)] == [0, 0, 0]
    assert (len(clients.answered) > CLIENTS, clients.refused) == (True, [])
    assert [one.output for one in readings if one.process.returncode != 0] == []
    outputs = "".join(one.output for one in [*workers, server, publisher, *readings])
    assert "locked" not in outputs
    assert "store lost" not in outputs
    assert machine.of("steady").delivered == machine.figures().events
