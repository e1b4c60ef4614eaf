"""Deliveries that bring their worker down: found out, and no innocent condemned."""

from __future__ import annotations

import signal
from collections.abc import Callable

from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from tests.faults.machine import Machine, on_each_store

MachineOf = Callable[[str], Machine]


@on_each_store
def test_a_poison_pill_is_condemned_and_the_49_beside_it_are_delivered(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("poisoned")
    machine.publish([{"number": number, "is_pill": number == 25} for number in range(50)])

    supervisor = machine.start_worker("--processes", "1")
    machine.until_settled()
    supervisor.send(signal.SIGTERM)

    (pill,) = machine.deliveries(Status.FAILED)
    assert pill.reason is FailureReason.CRASH_LOOP
    assert pill.crashes == machine.journal("begun")[25] == 3
    assert machine.of("poisoned").delivered == 49
    assert sorted(machine.journal("done")) == [number for number in range(50) if number != 25]
    assert supervisor.wait() == 0


@on_each_store
def test_a_handler_that_blocks_the_event_loop_ends_its_process_and_is_condemned(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("blocked")
    machine.publish([{"number": number, "is_blocker": number == 3} for number in range(6)])

    supervisor = machine.start_worker("--processes", "1")
    machine.until_settled()
    supervisor.send(signal.SIGTERM)

    (blocker,) = machine.deliveries(Status.FAILED)
    assert blocker.reason is FailureReason.CRASH_LOOP
    assert machine.of("blocked").delivered == 5
    assert "ended with code 70" in supervisor.output
    assert supervisor.wait() == 0


def test_an_unsupervised_worker_whose_loop_is_blocked_ends_with_70(machine_of: MachineOf) -> None:
    machine = machine_of("blocked")
    machine.publish([{"number": 3, "is_blocker": True}])

    worker = machine.start_worker()

    assert worker.wait() == 70
