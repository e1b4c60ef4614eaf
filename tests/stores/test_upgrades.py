"""Stores that earlier releases have filled go on after an upgrade: nothing in them is lost.

The fixtures are what the code of its time wrote: for each schema version that was released, a store
with deliveries in every state, and a note of what is in it. Versions 2 to 4 of SQLite were never
released on their own. `tests.stores.fill` makes the next.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

from redrive import Event, Redrive
from redrive.app.declaration import Ports
from redrive.clock import Clock
from redrive.model.delivery import Status
from redrive.model.replay import ReplayState
from redrive.store import Query, Store
from redrive.stores.postgres import PostgresStore, read_address
from redrive.stores.postgres import schema as postgres_schema
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite import schema as sqlite_schema
from redrive.testing.clock import FakeClock
from tests.docs.pages import ROOT
from tests.servers.postgres import Database

FIXTURES = Path(__file__).parent / "fixtures"
SQLITE = sorted(FIXTURES.glob("sqlite-*.sql"))
POSTGRES = sorted(FIXTURES.glob("postgres-*.rows.json"))


class Old:
    """A store of an earlier release, what is known to be in it, and how to open it."""

    def __init__(self, note: Path, latest: int, make: Callable[[Clock], Store]) -> None:
        self.made: dict[str, Any] = json.loads(note.read_text("utf-8"))
        self.latest = latest
        self.make = make
        self.clock = FakeClock(datetime.fromisoformat(self.made.pop("made_at")))
        self.replay: int | None = self.made.pop("replay", None)
        self.arrived: list[str] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Redrive]:
        """Open it with the present release, an hour later, with nothing that fails any more."""
        app = Redrive("memory://")
        for name, pattern in (
            ("billing", "order.*"),
            ("parcels", "parcel.*"),
            ("notes", "note.*"),
            ("fragile", "crash.*"),
        ):
            app.handler(pattern, name=name)(self._take)
        app.handler("letter.*", name="mail", order="park")(self._take)
        self.clock.advance("1h")
        with app.rewired(Ports(clock=self.clock), lambda: self.make(self.clock)):
            async with app:
                yield app

    async def work(self, app: Redrive) -> None:
        """Deliver what is due, and what comes due within some hours."""
        for _ in range(6):
            await app.drain()
            self.clock.advance("30m")

    def event(self, name: str) -> str:
        return str(self.made[name]["event"])

    async def _take(self, event: Event[Any]) -> None:
        self.arrived.append(event.id)


@pytest.fixture(
    params=[*SQLITE, *POSTGRES, "sqlite", "postgres"],
    ids=lambda one: one.name.partition(".")[0] if isinstance(one, Path) else f"{one}-of-today",
)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    """One that is kept, or one that is filled as the next to be kept will be."""
    path: Path = request.param
    if request.param == "sqlite":
        path = _filled(
            f"sqlite:///{tmp_path}/old.db", tmp_path / f"sqlite-{sqlite_schema.LATEST}.sql"
        )
    elif request.param == "postgres":
        with request.getfixturevalue("database").schema() as url:
            path = _filled(url, tmp_path / f"postgres-{postgres_schema.LATEST}.rows.json")
    note = path.with_name(f"{path.name.partition('.')[0]}.json")
    if path.suffix == ".sql":
        file = tmp_path / "shop.db"
        connection = apsw.Connection(str(file))
        connection.execute(path.read_text("utf-8"))
        connection.close()
        yield Old(note, sqlite_schema.LATEST, lambda clock: SqliteStore(file, clock=clock))
    else:
        url = request.getfixturevalue("new_postgres_url")
        _restore(path, url, request.getfixturevalue("database"))
        yield Old(note, postgres_schema.LATEST, lambda clock: PostgresStore(url, clock=clock))


def _filled(url: str, path: Path) -> Path:
    target = path.with_name(path.name.partition(".")[0])
    program = [sys.executable, "-m", "tests.stores.fill", url, str(target)]
    subprocess.run(program, cwd=ROOT, check=True)
    return path


def _restore(path: Path, url: str, database: Database) -> None:
    """Make a PostgreSQL schema of that version, and put the rows of a fixture into it."""
    name = read_address(url).schema
    number = int(path.name.partition(".")[0].rpartition("-")[2])
    scripts = sorted(resources.files("redrive.stores.postgres").joinpath("sql").iterdir(), key=str)
    rows = json.loads(path.read_text("utf-8"))
    database.execute(f"CREATE SCHEMA {name}")
    database.execute(
        f"CREATE TABLE {name}.schema (version integer NOT NULL, oldest_code integer NOT NULL)"
    )
    for script in scripts[:number]:
        database.execute(script.read_text("utf-8").replace("redrive.", f"{name}."))
    tables = rows["tables"]
    # Rows that the script has made itself, and then those that others refer to.
    database.execute("".join(f"DELETE FROM {name}.{table};" for table in tables))
    for table in sorted(
        tables, key=lambda one: ("destinations", "events", "replays").count(one) == 0
    ):
        database.execute(
            f"INSERT INTO {name}.{table} SELECT * FROM json_populate_recordset("
            f"NULL::{name}.{table}, $1::json)",
            json.dumps(tables[table]),
        )
    for sequence, (value, is_called) in rows["sequences"].items():
        database.execute(f"SELECT setval('{name}.{sequence}', $1, $2)", value, is_called)


async def statuses(app: Redrive) -> dict[int, str]:
    found: dict[int, str] = {}
    for status in Status:
        page = await app.operations.deliveries(Query(status=status, with_resolved=True), limit=100)
        found |= {one.id: str(status) for one in page.deliveries}
    return found


async def test_everything_is_as_it_was_after_the_upgrade(old: Old) -> None:
    expected = {one["delivery"]: one["status"] for one in old.made.values() if "delivery" in one}

    async with old.opened() as app:
        operations = app.operations
        assert await operations.schema_version() == old.latest
        assert await statuses(app) == expected
        twice = await operations.show(old.made["failed_twice"]["delivery"])
        resolved = await operations.show(old.made["resolved"]["delivery"])
        audit = await operations.audit()
        events = await operations.events(limit=100)
        wrong = await operations.recount()

    assert list(wrong) == []
    assert len(twice.delivery.cycles) >= 1
    assert resolved.delivery.resolution is not None
    assert resolved.delivery.resolution.by == "bob"
    assert {"replay", "resolve"} <= {one.action for one in audit}
    assert {one.event.id for one in events} == {one["event"] for one in old.made.values()}


async def test_a_worker_delivers_and_replays_what_was_in_it(old: Old) -> None:
    async with old.opened() as app:
        operations = app.operations
        again = await app.publish(
            "order.paid", {"order": 1}, key="order-1", idempotency_key="once", tenant="acme"
        )
        await old.work(app)
        before = list(old.arrived)
        for gate in await operations.gates():
            if gate.gate.pause is not None:
                await operations.resume(gate.destination, by="eve", why="upgraded")
        if old.replay is not None:
            await operations.resume_replay(old.replay, by="eve", why="upgraded")
        await old.work(app)
        await operations.replay(await operations.select(), by="eve", why="upgraded")
        await old.work(app)
        left = await operations.select()
        replays = await operations.replays()
        new = await app.publish("order.paid", {"order": 9}, key="order-9")
        await old.work(app)

    assert again.is_duplicate
    for name in ("pending", "retrying", "crashed"):
        assert old.event(name) in before
    for name in ("head", "delayed"):
        assert old.event(name) not in before
    wanted = {"failed_twice", "failed", "head", "behind", "pending", "retrying", "crashed"}
    assert sorted(old.arrived) == sorted([*(old.event(name) for name in wanted), new.event_id])
    assert old.arrived.index(old.event("head")) < old.arrived.index(old.event("behind"))
    assert left == []
    assert [one.state for one in replays] == [ReplayState.DONE] * len(replays)


async def test_stores_that_open_at_once_bring_it_up_to_date_once(old: Old) -> None:
    stores = [old.make(old.clock) for _ in range(4)]

    await asyncio.gather(*[store.open() for store in stores])
    versions = {store.schema_version for store in stores}
    for store in stores:
        await store.close()

    assert versions == {old.latest}
    async with old.opened() as app:
        assert len(await statuses(app)) == sum("delivery" in one for one in old.made.values())


def test_every_released_version_has_a_store_to_upgrade_from() -> None:
    """Who adds a migration keeps a store of the version before it."""
    assert {path.name for path in SQLITE} >= {
        f"sqlite-{number}.sql" for number in (1, 5, 6, 7, 8, 9)
    }
    assert {path.name for path in POSTGRES} >= {"postgres-1.rows.json"}


@pytest.mark.parametrize("schema", [sqlite_schema, postgres_schema])
def test_the_number_of_a_migration_is_the_version_it_leads_to(schema: ModuleType) -> None:
    scripts = resources.files(schema.__package__ or "").joinpath("sql").iterdir()

    numbers = sorted(int(one.name.split("_")[0]) for one in scripts)

    assert numbers == list(range(1, schema.LATEST + 1))
