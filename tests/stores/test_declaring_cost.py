"""A heartbeat costs the same whatever a worker declares: it names nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.model.destination import Destination
from redrive.store import Declarer, Store
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.pool import Link
from redrive.stores.sealed import PLAIN
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.connection import connect
from redrive.stores.sqlite.queue import heartbeat
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.testing.clock import FakeClock
from tests.scale import IS_LONG

LEASE = timedelta(seconds=15)
MANY = 10_000 if IS_LONG else 1_000


async def declare(store: Store, worker: str, count: int) -> None:
    """Let a worker declare so many destinations, and be heard of."""
    declared = [Destination(name=f"d{one}", patterns=(f"{one}.*",)) for one in range(count)]
    await store.register(declared, by=Declarer(worker=worker, lease=LEASE))
    await store.heartbeat(worker, [], lease=LEASE)


async def test_a_heartbeat_takes_the_same_steps_of_sqlite(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "redrive.db"
    store = SqliteStore(path, clock=clock)
    await store.open()
    steps = []
    for count in (1, MANY):
        await declare(store, "worker", count)
        clock.advance("5s")
        steps.append(steps_of_heartbeat(path, clock))
    await store.close()

    few, many = steps
    assert few > 0
    assert many == few


def steps_of_heartbeat(path: Path, clock: FakeClock) -> int:
    """Count the steps of SQLite's virtual machine."""
    connection, steps = connect(path), 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection.execute("BEGIN IMMEDIATE")
    connection.set_progress_handler(step, 1)
    session = SqliteSession(connection, clock.now(), PLAIN)
    finish(heartbeat(session, "worker", [], lease=LEASE, serving=None))
    connection.set_progress_handler(None)
    connection.execute("COMMIT")
    connection.close()
    return steps


async def test_a_heartbeat_sends_the_same_to_postgresql(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    store = PostgresStore(postgres_url, clock=clock, history=20)
    await store.open()
    sent: list[int] = []
    fetch = Link.fetch

    async def noted(self: Link, statement: str, *values: object) -> list[Any]:
        sent.append(len(statement) + len(repr(values)))
        return await fetch(self, statement, *values)

    trips = []
    for count in (1, MANY):
        await declare(store, "worker", count)
        with monkeypatch.context() as patched:
            patched.setattr(Link, "fetch", noted)
            await store.heartbeat("worker", [], lease=LEASE)
        trips.append([*sent])
        sent.clear()
    await store.close()

    few, many = trips
    assert few
    assert many == few
