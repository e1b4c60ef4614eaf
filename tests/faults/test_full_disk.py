"""A full or read-only disk: said in one sentence, nothing stored by halves, work goes on after."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from redrive import Operations, Redrive, StoreFullError
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Status
from tests.faults.disk import Disk
from tests.faults.machine import Child, Machine, until
from tests.waiting import PATIENCE_SECONDS

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


def test_a_publish_within_a_transaction_on_a_full_disk_says_so(
    machine_of: MachineOf, disk: Disk
) -> None:
    """SQLite then undoes the transaction by itself, and its savepoints are gone with it."""
    machine = machine_of("steady")
    mounted = disk.mount()
    machine.publish_numbers(10)
    payload = {"number": 1, "filler": "x" * 1_000_000}

    def publish_much() -> None:
        with machine.app.sync.transaction() as transaction:
            transaction.execute("PRAGMA cache_size = 10")
            for _ in range(50):
                machine.app.sync.publish("thing.made", payload, within=transaction)

    disk.fill()
    with pytest.raises(StoreFullError, match=r"^The disk under .* is full; nothing .* stored"):
        publish_much()
    disk.free()
    machine.publish_numbers(5)
    mounted.unregister()

    assert machine.figures().events == 15


def test_a_publish_on_a_read_only_disk_is_refused_whole_and_works_again_afterwards(
    machine_of: MachineOf, disk: Disk
) -> None:
    machine = machine_of("steady")
    mounted = disk.mount()
    machine.publish_numbers(10)

    disk.protect()
    with pytest.raises(StoreUnavailableError, match=r"^The store .* cannot be written\. Give"):
        machine.publish_numbers(200)
    stored_meanwhile = machine.figures().events
    disk.free()
    machine.publish_numbers(5)
    mounted.unregister()

    assert stored_meanwhile == 10
    assert machine.figures().events == 15


@pytest.mark.parametrize("trouble", [Disk.fill, Disk.protect], ids=["full", "read only"])
def test_workers_outlive_a_disk_that_takes_nothing_and_blame_no_delivery(
    machine_of: MachineOf, disk: Disk, trouble: Callable[[Disk], None]
) -> None:
    machine = machine_of("slow")
    workers = [machine.start_worker(REDRIVE_TEST_DISK="on demand") for _ in range(2)]
    machine.until_workers(2)
    machine.publish([{"number": number, "seconds": 6.0} for number in range(10)])
    machine.until_written("begun", 10)

    trouble(disk)
    until(lambda: any(_said(workers, "store lost")), what="a worker notices")
    machine.until_written("done", 10)
    until(machine.leases_have_run_out, what="the leases have run out")
    disk.free()
    machine.until_settled()
    for worker in workers:
        worker.send(signal.SIGTERM)

    assert [worker.wait() for worker in workers] == [0, 0]
    assert _said(workers, "store back") == _said(workers, "store lost")
    assert machine.of("slow").delivered == 10
    assert [one.crashes for one in machine.deliveries(Status.DELIVERED)] == [0] * 10


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Disk.fill, "the store cannot be written: its disk is full; the log says why"),
        (Disk.protect, "the store cannot be written: it is read-only; the log says why"),
    ],
    ids=["full", "read only"],
)
def test_a_worker_without_work_says_once_that_its_disk_takes_nothing(
    machine_of: MachineOf, disk: Disk, trouble: Callable[[Disk], None], reason: str
) -> None:
    """All it finds out by itself is that there is nothing to do, and for that it only reads."""
    machine = machine_of("steady")
    worker = machine.start_worker("--port", "0", REDRIVE_TEST_DISK="on demand")
    machine.until_workers(1)
    until(lambda: _reasons(worker) == [], what="the worker is ready")

    trouble(disk)
    until(lambda: _reasons(worker) == [reason], what="the worker tells of its disk")
    until(lambda: _silence(machine) > 5, what="it has tried to be heard of again and again")
    meanwhile, said = _reasons(worker), worker.output
    disk.free()
    until(lambda: _reasons(worker) == [], what="the worker is ready again")
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert meanwhile == [reason]
    assert (said.count("store lost"), said.count("store back")) == (1, 0)
    assert (worker.output.count("store lost"), worker.output.count("store back")) == (1, 1)


def _silence(machine: Machine) -> float:
    """Return for how many seconds the only worker was not heard of."""
    figures = machine.figures()
    (worker,) = figures.workers
    return (figures.now - worker.seen_at).total_seconds()


def _reasons(worker: Child) -> list[str]:
    """Return why a worker is not ready, as it tells on its port."""
    found = re.search(r"http://127\.0\.0\.1:\d+", worker.output)
    if found is None:
        return ["it has no port yet"]
    connection = HTTPConnection(urlsplit(found[0]).netloc, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        told: list[str] = json.loads(connection.getresponse().read())["reasons"]
    finally:
        connection.close()
    return told


def _said(workers: Sequence[Child], words: str) -> list[bool]:
    return [words in one.output for one in workers]


def test_a_file_that_may_only_be_read_is_neither_ready_nor_worked_on(
    machine_of: MachineOf, disk: Disk
) -> None:
    """An idle worker would not notice: it changes nothing."""
    machine = machine_of("steady")
    machine.publish_numbers(1)
    machine.app.sync.close()

    disk.protect()
    mounted = disk.mount()
    only_looking = Redrive(machine.store)
    stored = only_looking.sync.operate(Operations.status).events
    with pytest.raises(StoreUnavailableError, match=r"^The store .* cannot be written\. Give"):
        only_looking.sync.operate(Operations.schema_version)  # what `redrive init` asks
    only_looking.sync.close()
    mounted.unregister()
    worker = machine.start_worker(REDRIVE_TEST_DISK="on demand")

    assert stored == 1
    assert worker.wait() == 3
    assert "cannot be written" in worker.output
