"""SIGTERM: finish within the grace time, give back what has ended; a second one: quit now."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import pytest

from redrive.model.delivery import Status
from tests.faults.machine import Machine, on_each_store, until
from tests.waiting import PATIENCE_SECONDS

MachineOf = Callable[[str], Machine]
one_and_two = pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["here", "under"])


@one_and_two
@on_each_store
def test_a_stop_finishes_what_runs_and_loses_nothing(
    machine_of: MachineOf, options: tuple[str, ...]
) -> None:
    machine = machine_of("patient")
    machine.publish([{"number": number, "seconds": 0.2} for number in range(60)])
    worker = machine.start_worker(*options, "--concurrency", "20")
    machine.until_written("begun", 20)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    begun, done = machine.journal("begun"), machine.journal("done")
    slow = machine.of("slow")
    assert begun == done
    assert slow.delivered == len(done)
    assert slow.delivered + slow.pending == 60
    assert slow.in_flight == 0


@one_and_two
@on_each_store
def test_a_handler_longer_than_the_grace_is_given_back_for_nothing(
    machine_of: MachineOf, options: tuple[str, ...]
) -> None:
    machine = machine_of("slow")
    machine.publish([{"number": 1, "seconds": 30}])
    worker = machine.start_worker(*options)
    machine.until_written("begun", 1)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    (delivery,) = machine.deliveries(Status.PENDING)
    assert (delivery.attempts, delivery.crashes) == (0, 0)
    assert machine.figures().workers == ()


@one_and_two
@on_each_store
def test_a_second_signal_quits_at_once_and_gives_back_what_runs(
    machine_of: MachineOf, options: tuple[str, ...]
) -> None:
    machine = machine_of("patient")
    machine.publish([{"number": 1, "seconds": 30}])
    worker = machine.start_worker(*options)
    machine.until_written("begun", 1)

    worker.send(signal.SIGTERM)
    until(lambda: "opping" in worker.output, what="it is stopping")
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    (delivery,) = machine.deliveries(Status.PENDING)
    assert (delivery.attempts, delivery.crashes) == (0, 0)


@pytest.mark.parametrize("app", ["unending", "refusing"])
@on_each_store
def test_a_lane_goes_on_only_when_the_process_of_a_handler_that_did_not_end_is_gone(
    machine_of: MachineOf, app: str
) -> None:
    machine = machine_of(app)
    for number in (1, 2):
        machine.app.sync.publish("thing.made", {"number": number}, key="a")
    worker = machine.start_worker()
    machine.until_written("running", 1)
    machine.start_worker()
    machine.until_workers(2)

    worker.send(signal.SIGTERM)
    code = worker.wait()
    machine.until_settled()

    first, second = sorted(machine.deliveries(Status.DELIVERED), key=lambda one: one.id)
    running = machine.story(1).count("running")
    assert code == 0
    assert machine.story(1) == ["begun", *["running"] * running, "begun", "done"]
    assert machine.story(2) == ["begun", "done"]
    assert len(machine.pids()) == 2
    assert [one.result for one in first.log] == ["interrupted"]
    assert [(one.attempts, one.crashes) for one in (first, second)] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("app", ["leaving", "remaining"])
def test_a_signal_after_a_clean_stop_changes_nothing_of_the_exit_code(
    machine_of: MachineOf, app: str
) -> None:
    machine = machine_of(app)
    worker = machine.start_worker()
    machine.until_workers(1)
    worker.send(signal.SIGTERM)
    until((machine.folder / "reached").exists, what="it has stopped and is about to go")

    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)
    until(worker.hears, what="the signals are heard")
    (machine.folder / "go").touch()

    assert worker.wait() == 0
    assert worker.output.count("worker stopped") == 1


def test_an_end_that_hangs_after_a_clean_stop_is_forced_by_a_further_signal(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("leaving")
    worker = machine.start_worker()
    machine.until_workers(1)
    worker.send(signal.SIGTERM)
    until((machine.folder / "reached").exists, what="it has stopped and is about to go")

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0


@one_and_two
def test_a_signal_while_the_app_is_still_imported_ends_with_0(
    machine_of: MachineOf, options: tuple[str, ...]
) -> None:
    machine = machine_of("loading")
    worker = machine.start_worker(*options)
    until((machine.folder / "reached").exists, what="it is importing")

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert "SIGTERM" not in worker.output


def test_a_signal_while_the_store_does_not_answer_yet_ends_with_0(machine_of: MachineOf) -> None:
    machine = machine_of("steady")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_SECONDS)
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/shop"
        worker = machine.start_worker("--store", url)
        connection, _ = silent.accept()
        with connection:
            worker.send(signal.SIGTERM)

            assert worker.wait() == 0
