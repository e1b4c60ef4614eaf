"""The SQLite store and its file: schema, trouble, and commits that are shared."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from redrive.clock import SystemClock
from redrive.errors import (
    SchemaError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TransactionError,
)
from redrive.model.destination import Destination
from redrive.model.event import Event
from redrive.model.limits import Breaker
from redrive.model.settlement import Delivered
from redrive.store import (
    Allowance,
    ClaimRequest,
    Entry,
    NewReplay,
    Query,
    Selection,
    Settled,
)
from redrive.stores.sql import finding
from redrive.stores.sqlite import SqliteStore, claiming, ready, schema, session, tenants
from redrive.stores.sqlite.connection import connect, translated
from redrive.stores.sqlite.dialect import rewritten
from redrive.stores.sqlite.threads import Threads
from tests.conformance.world import OPERATOR, World, a_fault, an_event
from tests.faults.disk import Disk


@asynccontextmanager
async def a_store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_thread_that_is_never_asked_opens_no_connection(tmp_path: Path) -> None:
    path = tmp_path / "never.db"

    reader = Threads().reader(path)
    reader.start()
    reader.stop()

    assert not path.exists()


async def test_who_declares_nothing_new_waits_for_no_writer(tmp_path: Path) -> None:
    declared = [Destination(name="mail", patterns=("order.*",))]
    async with a_store(tmp_path / "redrive.db") as store:
        first = await store.register(declared)
        with closing(connect(tmp_path / "redrive.db")) as other:
            other.execute("BEGIN IMMEDIATE")

            async with asyncio.timeout(10):
                again = await store.register(declared)

    assert [one.name for one in again.routes.destinations] == ["mail"]
    assert again.routes.version == first.routes.version


async def test_durability_is_as_promised(tmp_path: Path) -> None:
    async with a_store(tmp_path / "redrive.db") as store:
        connection = await store._writer.call(lambda c: c)

        assert connection.execute("PRAGMA journal_mode").get == "wal"
        assert connection.execute("PRAGMA synchronous").get == 2
        assert connection.execute("PRAGMA mmap_size").get in {0, None}


async def test_stores_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "redrive.db", clock=SystemClock()) for _ in range(6)]

    await asyncio.gather(*[store.open() for store in stores])

    versions = [await store._reader.call(schema.schema_version) for store in stores]
    assert versions == [schema.LATEST] * 6
    for store in stores:
        await store.close()


async def test_a_store_waits_for_whoever_writes_to_a_file_without_a_write_ahead_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY); BEGIN IMMEDIATE")
    store = SqliteStore(path, clock=SystemClock())

    opening = asyncio.create_task(store.open())
    await asyncio.wait([opening], timeout=0.2)
    other.execute("COMMIT")
    other.close()
    await opening

    assert (await store.figures()).destinations == ()
    await store.close()


async def test_dead_letters_of_the_first_schema_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "redrive.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
        patch.setattr(schema, "LATEST", 1)
        old = apsw.Connection(str(path))
        schema.migrate(old, name="old")
    events = _fill(old)
    fault = msgspec.json.encode(a_fault()).decode()
    old.execute(
        "UPDATE redrive_deliveries SET status = 3, reason = 'terminal', settled_at = 1, "
        "fault = ?, group_id = 'hurts', attempts = 1, token = 1 WHERE id = 1",
        (fault,),
    )
    old.close()

    async with a_store(path) as store:
        assert store.schema_version == schema.LATEST > 1
        new = NewReplay(selection=Selection(query=Query(group="hurts")))
        replay = await store.start_replay(new, actor=OPERATOR)
        await store.advance_replays()
        allowance = Allowance(destination="billing", total=9)
        request = ClaimRequest(
            worker="w",
            allowances=(allowance,),
            generations=("default",),
            limit=1_000,
            lease=timedelta(seconds=9),
        )
        leased = (await store.claim(request)).deliveries
        settled = [Settled(lease=one.lease, settlement=Delivered()) for one in leased]
        refused = await store.settle(settled)
        await store.advance_replays()
        [after] = await store.replays()

        assert replay is not None
        assert [one.event for one in leased] == events
        assert list(refused) == []
        assert (after.state, after.delivered) == ("done", 1)


async def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    async with a_store(path):
        pass
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE redrive_schema SET version = 99, oldest_code = 99")
    connection.close()

    with pytest.raises(SchemaError, match=r"schema version 99.*pip install --upgrade redrive"):
        async with a_store(path):
            pass


async def test_a_newer_schema_that_only_adds_is_accepted(tmp_path: Path) -> None:
    """A rolling deploy: the last release goes on while the new one has migrated."""
    path = tmp_path / "redrive.db"
    async with a_store(path):
        pass
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE redrive_schema SET version = 99, oldest_code = 1")
    connection.execute("ALTER TABLE redrive_deliveries ADD COLUMN colour TEXT")
    connection.close()

    async with a_store(path) as store:
        await store.append([Entry(an_event(), ())], routes_version=0, all_or_nothing=True)

        assert (await store.figures()).events == 1


async def test_a_file_of_the_first_schema_goes_on_with_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "redrive.db"
    with monkeypatch.context() as old:
        old.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
        old.setattr(schema, "LATEST", 1)
        connection = apsw.Connection(str(path))
        assert schema.migrate(connection, name="old") == 1
        _fill(connection)
        connection.close()

    async with a_store(path) as store:
        assert store.schema_version == schema.LATEST > 1
        claim = await store.claim(
            ClaimRequest(
                worker="w1",
                allowances=(Allowance(destination="billing", total=9),),
                generations=("default",),
                limit=1_000,
                lease=timedelta(seconds=15),
            )
        )
        settled = [
            Settled(lease=one.lease, settlement=Delivered(), exchange=None)
            for one in claim.deliveries
        ]
        assert list(await store.settle(settled)) == []
        [gate] = await store.gates()

        assert len(settled) == 2
        assert gate.limits.breaker == Breaker(failures=7)
        workers = (await store.workload()).workers
        assert [(one.id, one.serving) for one in workers] == [("w1", None)]


def _fill(connection: apsw.Connection) -> list[Event[msgspec.Raw]]:
    """Leave work as the first release did: documents without the fields that came later."""
    events = [an_event({"n": number}) for number in range(2)]
    limits = {"breaker": {"failures": 7}, "retry_rate": {"per_second": 100.0, "burst": 10.0}}
    destination = {"name": "billing", "patterns": ["order.*"], "order": "none", "limits": limits}
    connection.execute(
        "INSERT INTO redrive_destinations (name, document) VALUES (?, ?)",
        ("billing", msgspec.json.encode(destination).decode()),
    )
    connection.execute(
        "INSERT INTO redrive_gates VALUES (1, ?)",
        ('{"breaker":{"type":"closed","in_a_row":2}}',),
    )
    for event in events:
        connection.execute(
            "INSERT INTO redrive_events (id, type, destinations, document) VALUES (?, ?, ?, ?)",
            (event.id, event.type, '["billing"]', msgspec.json.encode(event).decode()),
        )
        connection.execute(
            "INSERT INTO redrive_deliveries "
            "(position, destination, is_ready, priority, generation, due, enqueued_at) "
            "VALUES (last_insert_rowid(), 1, 1, 0, 'default', 0, 0)"
        )
    return events


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear diary, " * 500)

    with pytest.raises(StoreCorruptError, match="is not a SQLite database"):
        async with a_store(path):
            pass
    assert path.read_text() == "Dear diary, " * 500


async def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    async with a_store(path) as store:
        for _ in range(50):
            await store.append([Entry(an_event(), ())], routes_version=0, all_or_nothing=True)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(StoreCorruptError, match="restore a backup"):
        async with a_store(path) as store:
            await store.figures()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"folder .*nowhere does not exist"):
        async with a_store(tmp_path / "nowhere" / "redrive.db"):
            pass


async def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="is a folder; name a file in it"):
        async with a_store(tmp_path):
            pass


@pytest.mark.parametrize(
    ("theirs", "ours", "advice"),
    [
        (apsw.FullError, StoreFullError, "Free some space"),
        (apsw.NotADBError, StoreCorruptError, "move the file away"),
        (apsw.CorruptError, StoreCorruptError, "restore a backup"),
        (apsw.BusyError, StoreUnavailableError, "a transaction that was left open"),
        (apsw.CantOpenError, StoreUnavailableError, "may write in it"),
        (apsw.ReadOnlyError, StoreReadOnlyError, "Give this user the right"),
        (apsw.IOError, StoreUnavailableError, "failed: on purpose"),
    ],
)
def test_each_error_of_sqlite_becomes_one_of_ours_with_advice(
    theirs: type[apsw.Error], ours: type[StoreError], advice: str
) -> None:
    with pytest.raises(ours, match=advice), translated(Path("redrive.db")):
        raise theirs("on purpose")


async def test_a_full_disk_refuses_the_call_and_keeps_the_rest(tmp_path: Path) -> None:
    async with a_store(tmp_path / "redrive.db") as store:
        await store.append([Entry(an_event(), ())], routes_version=0, all_or_nothing=True)
        pages = await store._writer.call(lambda c: c.execute("PRAGMA page_count").get)
        await store._writer.call(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").get)

        large = msgspec.structs.replace(
            an_event(), payload=msgspec.Raw(b'"' + b"x" * 90_000 + b'"')
        )
        with pytest.raises(StoreFullError, match="Free some space"):
            await store.append([Entry(large, ())], routes_version=0, all_or_nothing=True)

        assert (await store.figures()).events == 1
        await store._writer.call(lambda c: c.execute("PRAGMA max_page_count = 1000000").get)
        await store.append([Entry(large, ())], routes_version=0, all_or_nothing=True)
        assert (await store.figures()).events == 2


async def test_a_call_that_fails_is_undone_alone(tmp_path: Path) -> None:
    async with a_store(tmp_path / "redrive.db") as store:

        def good(connection: apsw.Connection) -> int:
            connection.execute("INSERT INTO redrive_workers (id, seen_at) VALUES ('good', 1)")
            return connection.totalchanges()

        def bad(connection: apsw.Connection) -> int:
            connection.execute("INSERT INTO redrive_workers (id, seen_at) VALUES ('bad', 1)")
            raise ValueError("on purpose")

        results = await asyncio.gather(
            store._writer.call(good), store._writer.call(bad), return_exceptions=True
        )

        assert isinstance(results[1], ValueError)
        assert [one.id for one in (await store.figures()).workers] == ["good"]


async def test_calls_made_side_by_side_share_one_commit(tmp_path: Path) -> None:
    async with a_store(tmp_path / "redrive.db") as store:
        before = store._changes()[1]

        await asyncio.gather(
            *[
                store.append([Entry(an_event(), ())], routes_version=0, all_or_nothing=True)
                for _ in range(20)
            ]
        )

        assert store._changes()[1] == before + 1
        assert (await store.figures()).events == 20


async def test_a_connection_of_the_standard_library_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    async with a_store(tmp_path / "redrive.db") as store:
        connection = sqlite3.connect(":memory:")

        with pytest.raises(TransactionError, match="Two SQLite libraries in one process"):
            await store.append(
                [Entry(an_event(), ())], routes_version=0, all_or_nothing=True, within=connection
            )
        connection.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "redrive.db", clock=SystemClock())

    with pytest.raises(StoreUnavailableError, match="is closed"):
        await store.figures()


async def test_a_claim_uses_an_index_for_every_question(tmp_path: Path) -> None:
    """No question of a claim may scan a table: its cost must not grow with the history."""
    async with a_store(tmp_path / "redrive.db") as store:
        statements: dict[str, Any] = {
            session._EARLIEST_WAITING: (),
            session._PROMOTE: (1, 1),
            rewritten(finding._FIND): (1, '["default"]', 0, 9),
            ready._TENANTS: {"destination": 1, "sorts": "[]", "start": "", "most": 9},
            tenants._NAMED: {"destination": 1, "tenants": "[]"},
            ready._PROMOTE: {"destination": 1, "start": "", "most": 9, "turn": 3, "now": 1},
            ready._SURVEY: {"destination": 1, "sorts": "[]", "tenant": ""},
            ready._LINES: {"destination": 1, "lines": "[]", "now": 1, "limit": 10},
            ready._ONE_LINE: {
                "destination": 1,
                "generation": "default",
                "kind": 0,
                "tenant": "",
                "now": 1,
                "limit": 10,
            },
            claiming._SUSPECTS: ("[1]", '["default"]', 1),
            claiming._MORE: {"destination": 1, "generations": "[]", "now": 1},
            claiming._LEASE: ("w", 1, 0, 0, "[1]"),
            claiming._NEXT_DUE: ("[1]", '["default"]'),
            claiming._SIZES: ("[1]",),
            claiming._LEASED: {"ids": "[1]", "now": "1.0", "alone": "false"},
        }

        def plans(connection: apsw.Connection) -> list[str]:
            return [
                step[3]
                for statement, bindings in statements.items()
                for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
            ]

        steps = await store._reader.call(plans)

    assert steps
    assert [step for step in steps if step == "SCAN redrive_deliveries"] == []
    assert [step for step in steps if "redrive_next_due (destination=? AND generation=?)" in step]


async def test_a_transaction_that_is_cancelled_is_wholly_there_or_not_at_all(
    tmp_path: Path,
) -> None:
    async with a_store(tmp_path / "redrive.db") as store:

        async def publish(steps: int) -> None:
            clock = SystemClock()
            async with store.transaction() as transaction:
                transaction.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
                transaction.execute("INSERT INTO orders VALUES (?)", (steps,))
                await store.append(
                    [Entry(an_event(), ())],
                    routes_version=0,
                    all_or_nothing=True,
                    within=transaction,
                )
                await clock.sleep(0)

        ends: list[BaseException | None] = []
        for steps in range(60):
            task = asyncio.ensure_future(publish(steps))
            for _ in range(steps):
                await SystemClock().sleep(0)
            task.cancel()
            ends += await asyncio.gather(task, return_exceptions=True)
        await publish(-1)

        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
        orders = await store._reader.call(lambda c: c.execute("SELECT count(*) FROM orders").get)
        assert (await store.figures()).events == orders


async def test_closing_says_nothing_of_a_disk_that_is_full_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """What is committed is in the log beside the file; moving it on can wait for another day."""
    disk = Disk(tmp_path)
    mounted = disk.mount()
    try:
        async with World.opened(
            lambda clock: SqliteStore(tmp_path / "store.db", clock=clock), history=20
        ) as world:
            await world.publish(an_event(), an_event())
            disk.fill()
            await world.store.close()
            disk.free()
            await world.reopen()

            assert (await world.store.figures()).events == 2
    finally:
        mounted.unregister()
