"""`kill -9`: of workers in the middle of their work, and of publishers in the middle of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.model.delivery import Status
from redrive.model.event import EventId
from tests.faults.machine import Machine, on_each_store, until
from tests.scale import scaled

MachineOf = Callable[[str], Machine]
KILLS = scaled("KILLS", usually=5)
BETWEEN = 200
"""How many events are delivered from one kill to the next."""
EVENTS = KILLS * BETWEEN + 300

many_kills = pytest.mark.timeout(240 + 20 * KILLS)


@many_kills
@on_each_store
def test_no_event_is_lost_when_workers_are_killed_in_the_middle_of_their_work(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("steady")
    receipts = machine.publish_numbers(EVENTS)

    for kill in range(1, KILLS + 1):
        victim = machine.start_worker("--concurrency", "20")
        machine.until_written("done", BETWEEN * kill)
        victim.kill()
    machine.start_worker()
    machine.until_settled()

    assert len(receipts) == machine.figures().events == EVENTS
    assert machine.of("steady").delivered == EVENTS
    assert sorted(machine.journal("done")) == list(range(EVENTS))


@on_each_store
def test_what_a_killed_worker_carried_is_taken_back_when_the_lease_is_over(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("slow")
    machine.publish([{"number": number, "seconds": 600} for number in range(20)])
    victim = machine.start_worker()
    machine.until_written("begun", 20)
    machine.start_worker("--concurrency", "1")
    machine.until_workers(2)

    victim.kill()
    until(
        lambda: (
            all(one.crashes == 1 for one in machine.deliveries(Status.PENDING))
            and len(machine.deliveries(Status.PENDING)) >= 19
        ),
        what="taken back",
    )


@many_kills
@on_each_store
def test_no_acknowledged_event_is_missing_when_publishers_are_killed(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("steady")
    acknowledged = machine.folder / "acknowledged"

    for kills in range(1, KILLS + 1):
        publisher = machine.start("-m", "tests.faults.publisher")
        _until_acknowledged(100 * kills, acknowledged)
        publisher.kill()
    machine.start_worker()
    machine.until_settled()

    ids = [EventId(line) for line in acknowledged.read_text("utf-8").splitlines()]
    stored = machine.stored_ids()
    assert len(ids) >= 100 * KILLS
    assert [one for one in ids if one not in stored] == []
    assert machine.of("steady").delivered == len(stored)


def _until_acknowledged(count: int, path: Path) -> None:
    until(
        lambda: path.exists() and path.read_bytes().count(b"\n") >= count,
        what=f"{count} acknowledged",
    )
