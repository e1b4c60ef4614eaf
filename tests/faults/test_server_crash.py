"""A PostgreSQL server that dies under load: nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from redrive import Operations
from redrive.model.delivery import Status
from redrive.model.event import EventId
from tests.faults.machine import Child, Machine, until
from tests.servers.postgres import Cluster

CRASHES, EVENTS = (5, 1_000) if os.environ.get("REDRIVE_TEST_LONG") else (1, 200)


@pytest.fixture
def machine(tmp_path: Path, postgres_cluster: Cluster) -> Iterator[Machine]:
    with postgres_cluster.database.schema() as url:
        machine = Machine(tmp_path, "steady", url)
        yield machine
        machine.close()


@pytest.mark.timeout(300 * CRASHES)
def test_no_acknowledged_event_is_lost_when_the_server_crashes_under_load(
    machine: Machine, postgres_cluster: Cluster
) -> None:
    acknowledged = machine.folder / "acknowledged"
    workers = [machine.start_worker("--concurrency", "20") for _ in range(2)]
    machine.until_workers(2)
    publisher = machine.start("-m", "tests.faults.publisher")
    _until_lines(EVENTS, acknowledged)

    for crash in range(1, CRASHES + 1):
        postgres_cluster.stop(is_crash=True)
        _until_said("store lost", workers, times=crash)
        postgres_cluster.start()
        _until_lines(_lines(acknowledged) + EVENTS, acknowledged)
        _until_said("store back", workers, times=crash)
    publisher.kill()
    machine.until_settled(within=120 * CRASHES)

    ids = {EventId(line) for line in acknowledged.read_text("utf-8").splitlines()}
    stored = machine.app.sync.operate(Operations.events, limit=1_000_000)
    numbers = {msgspec.json.decode(one.event.payload)["number"] for one in stored}
    assert ids - {one.event.id for one in stored} == set()
    assert machine.of("steady").delivered == len(stored)
    assert numbers - machine.journal("done").keys() == set()
    assert [one for one in machine.deliveries(Status.DELIVERED) if one.crashes] == []
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0]


def _until_said(words: str, workers: Sequence[Child], *, times: int) -> None:
    until(lambda: all(one.output.count(words) >= times for one in workers), what=words)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _until_lines(count: int, path: Path) -> None:
    until(lambda: _lines(path) >= count, what=f"{count} acknowledged")
