"""Erased is erased: after a whole story of failures, no file of the database has it any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import apsw
import asyncpg
import msgspec
import pytest

from redrive import Redrive
from redrive.archive import Archive
from redrive.clock import SystemClock
from redrive.errors import UsageError
from redrive.journal.line import PublishedRecord
from redrive.journal.writer import JournalWriter
from redrive.model.erasure import ErasurePart
from redrive.model.event import Event
from redrive.model.letter import Letter
from redrive.operations import GatewayDocument, erasing
from tests.http.receiver import Receiver, answer, receiving
from tests.servers.postgres import Database
from tests.waiting import eventually

SAID = "Xanthippe"
_KEY, _TENANT = "customer-4711", "acme-4711"
_ARE_OVER = "SELECT count(*) = 0 FROM pg_stat_activity WHERE xact_start < $1"


class Files(NamedTuple):
    """A store, where its files are, and what makes room for nothing in them."""

    url: str
    folder: Path
    compact: Callable[[], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "sqlite":
        path = tmp_path / "store" / "shop.db"
        path.parent.mkdir()
        yield Files(f"sqlite:///{path}", path.parent, lambda: asyncio.to_thread(_vacuum, path))
        return
    database: Database = request.getfixturevalue("database")
    name = f"erased_{tmp_path.name}".replace("-", "_")
    database.execute(f'CREATE DATABASE "{name}"')
    url = _beside(database.url, name)
    oid = database.value("SELECT oid FROM pg_database WHERE datname = $1", name)
    folder = Path(database.value("SHOW data_directory")) / "base" / str(oid)
    yield Files(url, folder, lambda: _vacuum_full(url))
    database.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def test_no_file_has_what_was_erased(files: Files, tmp_path: Path) -> None:
    exports, journals = tmp_path / "exports", tmp_path / "journal"
    app = Redrive(files.url, export_folder=exports, journal=journals)
    async with receiving() as receiver, app:
        ids = await live_through(app, receiver)
        letters = [one async for one in app.operations.export()]
        archive(exports, letters)
        journal(journals, letters[0].event)
        undrained = await app.operations.plan_erase(key=_KEY)
        await app.operations.drain_journal()
        for folder in (exports, journals):
            assert grep(SAID, folder)
        plan = await app.operations.plan_erase(tenant=_TENANT)
        await files.compact()
        assert grep(SAID, files.folder)
        assert grep(_TENANT, files.folder)

        done = await app.operations.erase(
            tenant=_TENANT, by="ada", why="request 17", parts=tuple(ErasurePart)
        )

        with pytest.raises(UsageError, match="was erased"):
            await app.operations.replay(ids, by="ada")
        assert SAID not in await said_of(app, ids[0])
        entries = await app.operations.audit()
    await files.compact()

    assert undrained.to_drain == 1
    assert (plan.events, plan.archived, plan.journaled, plan.to_drain) == (1, 1, 1, 0)
    assert (done.events, done.left, done.archived, done.journaled) == (1, 0, 1, 1)
    assert all(_TENANT not in f"{one.why} {one.detail}" for one in entries)
    for text in (SAID, _KEY, _TENANT):
        assert grep(text, files.folder, exports, journals) == []


async def live_through(app: Redrive, receiver: Receiver) -> list[int]:
    """Have an event retried, failed, grouped, edited, replayed and journaled, said each time."""
    receiver.always(answer(422, f"no customer {SAID}"))
    crm = {
        "url": receiver.url,
        "allow_private": True,
        "retry": {"base": "0s", "max_attempts": 2},
        "request_log": {"keep": 50},
        "breaker": {"failures": 50},
    }
    rules = {"orders": {"service": "crm", "event": "order.*"}}
    await app.operations.apply_gateway(GatewayDocument(services={"crm": crm}, rules=rules), by="me")
    receiver.answers(answer(503, f"busy with {SAID}"))
    await app.publish(
        "order.paid",
        {"name": SAID},
        key=_KEY,
        tenant=_TENANT,
        headers={"x-customer": _KEY},
        idempotency_key=f"{_KEY}-paid",
    )
    await app.drain(services=True)
    [letter] = (await app.operations.dead_letters()).deliveries
    [group] = await app.operations.groups()
    assert SAID in group.title
    await app.operations.edit(letter.id, {"name": f"{SAID} II"}, by="ada", why="a typing error")
    await app.drain(services=True)
    await app.operations.replay([letter.id], by="ada")
    await app.drain(services=True)
    told = await app.operations.show(letter.id)
    assert len(told.delivery.cycles) == 2
    assert SAID in await said_of(app, letter.id)
    return [letter.id]


async def said_of(app: Redrive, delivery: int) -> str:
    """Return all that is told of a delivery, as text."""
    story = await app.operations.reveal(delivery, by="ada")
    logged = await app.operations.request_log("crm")
    return msgspec.json.encode([story.delivery, story.event, list(logged)]).decode()


def archive(folder: Path, letters: Sequence[Letter]) -> None:
    """Write letters to an archive, as a worker does with those over a limit."""
    Archive(folder).add("crm", letters, now=datetime(2026, 1, 1, tzinfo=UTC))


def journal(folder: Path, event: Event[msgspec.Raw]) -> None:
    """Have the event in a file of a journal, as a process that could not reach the store."""
    writer = JournalWriter(folder, clock=SystemClock(), host="web-1")
    writer.append([PublishedRecord(event=event)])
    writer.let_go()


def grep(text: str, *folders: Path) -> list[str]:
    """Return the files that have a text in them."""
    found = subprocess.run(
        ["grep", "-rlaF", "--", text, *map(str, folders)],  # noqa: S607 - it is on every machine
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    # A server that runs removes files of its own meanwhile; they have nothing any more.
    problems = found.stderr.splitlines()
    assert all(one.endswith("No such file or directory") for one in problems), problems
    assert found.returncode in (0, 1) or problems
    return found.stdout.splitlines()


def _vacuum(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("ANALYZE")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


async def _vacuum_full(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        # First the planner's samples of the values, then the tables that held them. Of a table that
        # is empty just now, such as that of changes of counts, ANALYZE leaves what it had.
        await connection.execute("DELETE FROM pg_statistic")
        await connection.execute("ANALYZE")
        # Rows stay that somebody's transaction may still see, be it in another database of the
        # server: autovacuum has some, which last as long as the machine is busy.
        now = await connection.fetchval("SELECT clock_timestamp()")
        await eventually(
            lambda: connection.fetchval(_ARE_OVER, now), what="older transactions are over"
        )
        await connection.execute("VACUUM FULL")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _beside(url: str, name: str) -> str:
    """Return the address of another database of the same server."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{name}"))


async def test_an_erasure_that_was_cut_off_goes_on_where_it_was(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "_SLICE", 2)
    async with Redrive(store) as app:
        for number in range(5):
            await app.publish("page.seen", {"n": number}, key="a")

        with pytest.raises(_CutOffError):
            await app.operations.erase(key="a", by="ada", why="request 17", progress=_cut_off)
        first = await app.operations.plan_erase(key="a")
        done = await app.operations.erase(key="a", by="ada", why="request 17")
        entries = await app.operations.audit()

    assert (first.events, first.erased) == (3, 2)
    assert (done.events, done.left) == (3, 0)
    assert [one.count for one in entries] == [1, 2, 2]


class _CutOffError(Exception):
    """The process has ended."""


def _cut_off(_: int) -> None:
    raise _CutOffError
