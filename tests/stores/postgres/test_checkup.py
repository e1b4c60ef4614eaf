"""Whether the PostgreSQL server is well, as `redrive doctor` tells."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from redrive import Redrive, StoreUnavailableError
from redrive.clock import SystemClock
from redrive.store import Finding, Level
from redrive.stores.postgres import PostgresStore, checkup, read_address
from redrive.stores.postgres.schema import LATEST, check_server
from tests.servers.postgres import Cluster
from tests.waiting import eventually


@pytest.fixture
def url(postgres_cluster: Cluster) -> Iterator[str]:
    with postgres_cluster.database.schema() as url:
        yield url


async def examine(url: str, clock: SystemClock | None = None) -> Sequence[Finding]:
    store = PostgresStore(url, clock=clock or SystemClock())
    await store.open()
    try:
        return await store.check()
    finally:
        await store.close()


def serious(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is not Level.OK]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(read_address(url).dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_sound_server_is_well(url: str) -> None:
    found = await examine(url)

    assert serious(found) == []
    said = " ".join(finding.what for finding in found)
    assert "answers, on PostgreSQL 1" in said
    assert f"schema version {LATEST} is current" in said
    assert "survives a crash" in said
    assert "connections are free" in said


@pytest.mark.parametrize(
    ("setting", "value", "level", "what"),
    [
        ("synchronous_commit", "off", Level.ERROR, "synchronous_commit is off"),
        ("default_transaction_read_only", "on", Level.ERROR, "set to read only"),
    ],
)
async def test_a_setting_that_endangers_the_work_is_told(
    setting: str, value: str, level: Level, what: str, url: str
) -> None:
    await examine(url)
    async with connected(url) as connection:
        await connection.execute(f"ALTER ROLE redrive SET {setting} = {value}")
        try:
            (finding,) = serious(await examine(url))
        finally:
            await connection.execute(f"ALTER ROLE redrive RESET {setting}")

    assert finding.level is level
    assert what in finding.what
    assert finding.advice


async def test_settings_of_the_server_that_endanger_the_work_are_told(
    url: str, postgres_cluster: Cluster
) -> None:
    postgres_cluster.stop()
    postgres_cluster.start(fsync="off", autovacuum="off", max_connections="12")
    try:
        found = serious(await examine(url))
    finally:
        postgres_cluster.stop()
        postgres_cluster.start()

    assert [finding.level for finding in found] == [Level.ERROR, Level.WARNING, Level.ERROR]
    durability, connections, vacuum = found
    assert "fsync is off" in durability.what
    assert "of the server's 9 connections are free, and each process may open 10" in (
        connections.what
    )
    assert "autovacuum is off" in vacuum.what
    assert all(finding.advice for finding in found)


async def test_a_transaction_that_was_left_open_is_told_with_its_process(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_LONG", timedelta(0))
    async with connected(url) as connection, connection.transaction():
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        (finding,) = serious(await examine(url))

    assert finding.level is Level.WARNING
    assert f"Process {pid} of the server (redrive; idle in transaction)" in finding.what
    assert f"pg_terminate_backend({pid})" in finding.advice


async def test_a_transaction_that_writes_in_another_database_is_told(
    url: str, postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transaction numbers are shared by the whole server, and the log is read in their order."""
    monkeypatch.setattr(checkup, "_LONG", timedelta(0))
    postgres_cluster.database.execute("CREATE DATABASE elsewhere")
    there = urlunsplit(urlsplit(url)._replace(path="/elsewhere"))
    try:
        async with connected(there) as connection, connection.transaction():
            reading = serious(await examine(url))
            await connection.execute("SELECT pg_current_xact_id()")
            (finding,) = serious(await examine(url))
    finally:
        postgres_cluster.database.execute("DROP DATABASE elsewhere WITH (FORCE)")

    assert reading == []
    assert "has had a transaction open in the database elsewhere for" in finding.what
    assert "dead rows" not in finding.what


async def test_what_a_user_may_not_see_is_told_with_what_to_grant(
    url: str, postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_LONG", timedelta(0))
    schema, database = read_address(url).schema, postgres_cluster.database
    database.execute(f"CREATE ROLE lowly LOGIN; CREATE SCHEMA {schema} AUTHORIZATION lowly")
    lowly = urlunsplit(urlsplit(url)._replace(netloc=f"lowly@127.0.0.1:{postgres_cluster.port}"))
    try:
        async with connected(url) as connection, connection.transaction():
            await connection.execute("SELECT 1")
            unseen = await examine(lowly)
            database.execute("GRANT pg_read_all_stats TO lowly")
            seen = await examine(lowly)
    finally:
        database.execute(f"DROP SCHEMA {schema} CASCADE; DROP ROLE lowly")

    (finding,) = serious(unseen)
    others = "(another connection|[2-9] other connections)"
    assert re.search(f"{others} have been open cannot be seen by the user lowly", finding.what)
    assert finding.advice == 'Let it see them: GRANT pg_read_all_stats TO "lowly"'
    assert not any("No transaction has been open" in one.what for one in unseen)
    (finding,) = serious(seen)
    assert "idle in transaction" in finding.what
    free = [next(one.what for one in found if "free" in one.what) for found in (unseen, seen)]
    assert free[0] == free[1]


async def test_a_prepared_transaction_that_nobody_ends_is_told(
    url: str, postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_LONG", timedelta(0))
    postgres_cluster.stop()
    postgres_cluster.start(max_prepared_transactions="5")
    try:
        async with connected(url) as connection:
            await connection.execute("BEGIN; SELECT pg_current_xact_id()")
            await connection.execute("PREPARE TRANSACTION 'left behind'")
            found = serious(await examine(url))
            await connection.execute("ROLLBACK PREPARED 'left behind'")
    finally:
        postgres_cluster.stop()
        postgres_cluster.start()

    assert any("'left behind' of redrive was prepared" in finding.what for finding in found)


async def test_dead_rows_that_pile_up_are_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_MANY_DEAD_ROWS", 2)
    await examine(url)
    schema = read_address(url).schema
    async with connected(url) as connection:
        await connection.execute(f"ALTER TABLE {schema}.workers SET (autovacuum_enabled = false)")
        for _ in range(5):
            await connection.execute(
                f"INSERT INTO {schema}.workers VALUES ('w', now()) "
                "ON CONFLICT (id) DO UPDATE SET seen_at = now()"
            )
    found = await _until_told("workers has 4 dead rows", url)

    exempt, dead = (finding for finding in found if f"{schema}.workers" in finding.what)
    assert (exempt.level, dead.level) == (Level.ERROR, Level.WARNING)
    assert exempt.what == f"autovacuum is off for {schema}.workers."
    assert f"{schema}.workers has 4 dead rows to 1 live ones" in dead.what
    assert f"VACUUM {schema}.workers" in dead.advice


class SlowClock(SystemClock):
    def now(self) -> datetime:
        return super().now() - timedelta(minutes=10, seconds=30)


async def test_a_clock_that_is_wrong_is_told(url: str) -> None:
    (finding,) = serious(await examine(url, SlowClock()))

    assert finding.level is Level.WARNING
    assert "10 min behind the server's" in finding.what


async def test_a_server_that_is_too_old_is_refused() -> None:
    version = asyncpg.types.ServerVersion(12, 9, 0, "final", 0)

    with pytest.raises(StoreUnavailableError, match="is PostgreSQL 12; Redrive needs 13 or newer"):
        check_server(version, read_address("postgresql://localhost/shop"))


async def test_the_doctor_tells_of_work_that_nobody_does(url: str) -> None:
    app = Redrive(url)
    app.handler("order.*", name="billing")(lambda _: None)
    async with app:
        await app.publish("order.paid", due=SystemClock().now() - timedelta(minutes=5))
        found = serious(await app.operations.examine())

    assert any("no worker is alive" in finding.what for finding in found)


async def _until_told(words: str, url: str) -> list[Finding]:
    """Wait until the server has counted what was done; it does so now and then."""
    found: list[Finding] = []

    async def is_told() -> bool:
        found[:] = serious(await examine(url))
        return any(words in finding.what for finding in found)

    await eventually(is_told, what=words)
    return found
