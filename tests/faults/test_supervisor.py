"""The supervisor: restarts what dies, gives up on what is wrong, and never leaves orphans."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.faults.machine import Machine, is_running, on_each_store, until

MachineOf = Callable[[str], Machine]


@on_each_store
def test_every_process_that_dies_is_started_again(machine_of: MachineOf) -> None:
    machine = machine_of("slow")
    supervisor = machine.start_worker("--processes", "2", "--concurrency", "2")
    machine.until_workers(2)
    published = 0

    def publish() -> None:
        nonlocal published
        published += len(machine.publish([{"number": published, "seconds": 0.3}]))

    def are_both_at_work() -> bool:
        publish()
        return len(machine.pids()) == 2

    until(are_both_at_work, what="two processes at work")

    for pid in machine.pids():
        os.kill(pid, signal.SIGKILL)
    publish()
    machine.until_settled()

    assert machine.of("slow").delivered == published
    assert len(machine.pids()) > 2
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert [pid for pid in machine.pids() if is_running(pid)] == []
    assert supervisor.output.count("was ended by SIGKILL") == 2


@on_each_store
def test_processes_end_by_themselves_when_their_supervisor_is_killed(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("patient")
    supervisor = machine.start_worker("--processes", "2", "--concurrency", "2")
    machine.until_workers(2)
    machine.publish([{"number": number, "seconds": 5} for number in range(4)])
    machine.until_written("begun", 4)

    supervisor.kill()
    until(lambda: not any(is_running(pid) for pid in machine.pids()), what="no orphan left")

    assert len(machine.pids()) == 2
    assert machine.of("slow").delivered == 4
    assert machine.figures().workers == ()


def test_a_process_that_ignores_every_signal_is_killed_after_the_second_one(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("deafened")
    machine.publish([{"number": 1}])
    supervisor = machine.start_worker("--processes", "1")
    machine.until_written("begun", 1)

    supervisor.send(signal.SIGINT)
    until(supervisor.hears, what="the first signal is heard")
    supervisor.send(signal.SIGTERM)

    assert supervisor.wait() == 70
    assert not is_running(machine.pids()[0])


def test_a_target_that_cannot_be_loaded_ends_all_with_one_sentence(machine_of: MachineOf) -> None:
    machine = machine_of("steady")

    supervisor = machine.start(
        "-m", "redrive", "worker", "tests.faults.nowhere:app", "--processes", "3"
    )

    assert supervisor.wait() == 2
    assert supervisor.output.count("There is no module 'tests.faults.nowhere'") == 1
    assert "Traceback" not in supervisor.output


def test_a_store_that_cannot_be_opened_ends_all_with_its_code(
    machine_of: MachineOf, tmp_path: Path
) -> None:
    machine = machine_of("steady")

    supervisor = machine.start_worker(
        "--processes", "2", "--store", f"sqlite:///{tmp_path}/missing/store.db"
    )

    assert supervisor.wait() == 3
    assert supervisor.output.count("does not exist") == 1
    assert "Traceback" not in supervisor.output
