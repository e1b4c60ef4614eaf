"""Everything an app does with payloads, while its store keeps them encrypted."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from redrive import Event, NewEvent, ReadModel, Redrive, Retry, Tracking
from redrive.clock import SystemClock
from redrive.errors import SecretError
from redrive.model.delivery import Status
from redrive.operations import GatewayDocument
from redrive.store import Query
from redrive.testing import Kit
from redrive.web.application import make_asgi
from tests.http.receiver import answer, receiving
from tests.stores.encrypted import rows_of
from tests.tracking.sinks import Dead
from tests.waiting import eventually
from tests.web.client import Client

PLANTED = "planted-name-of-a-patient"
KEY, NEXT_KEY = (f"k{one}:{base64.b64encode(bytes([one]) * 32).decode()}" for one in (1, 2))
PAYLOAD = {"patient": PLANTED}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of each database, for a process that has the key."""
    monkeypatch.setenv("REDRIVE_KEYS", KEY)
    return str(request.getfixturevalue(f"{request.param}_url"))


class Ward:
    """An app whose handler remembers what it was given, and fails until it is mended."""

    def __init__(self, store: str, **settings: Any) -> None:  # noqa: ANN401 - of the settings
        self.app = Redrive(store, **settings)
        self.url = store
        self.got: list[object] = []
        self.is_mended = True
        once = Retry(max_attempts=1)
        self.app.handler("visit.*", name="ward", retry=once, breaker=None)(self.take)

    async def take(self, event: Event[Any]) -> None:
        self.got.append(event.payload)
        if not self.is_mended:
            raise ValueError(f"no bed for {event.payload}")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Redrive]:
        """Open it, encrypted."""
        async with self.app:
            await self.app.operations.encrypt(by="ada", why="names of patients")
            yield self.app

    async def telling(self) -> list[str]:
        """Return the columns of the store that say what was planted."""
        rows = await rows_of(self.url)
        assert "~k1:" in str(rows), "nothing is encrypted"
        return [name for name, values in rows.items() if PLANTED in "".join(values)]


async def test_a_transaction_on_sqlite(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_KEYS", KEY)
    ward = Ward(sqlite_url)
    async with ward.opened() as app:
        async with app.transaction() as transaction:
            transaction.execute("CREATE TABLE visits (id INTEGER)")
            await app.publish("visit.begun", PAYLOAD, within=transaction)
        await app.drain()

    assert ward.got == [PAYLOAD]
    assert await ward.telling() == []


async def test_schedules_of_code_and_of_the_store(store: str) -> None:
    ward = Ward(store)
    ward.app.schedule(every="20m", type="visit.due", payload=PAYLOAD)
    async with Kit(ward.app, store=store) as kit:
        await kit.operations.encrypt(by="ada", why="names of patients")
        await kit.run_for("1h")
        assert ward.got == [PAYLOAD] * 3
        assert await ward.telling() == []

        hourly = {"event": "visit.over", "every": "1h", "payload": PAYLOAD}
        await kit.operations.save_schedule("hourly", hourly, by="ada", is_new=True)
        await ward.app.drain(services=True)
        kit.clock.advance("1h")
        await ward.app.drain(services=True)

        assert [one.event.type for one in await ward.app.log.read()].count("visit.over") == 1
        assert ward.got[-1] == PAYLOAD
        # What is declared in the store is a document for people, as the guide says.
        assert await ward.telling() == ["gateway.document"]


async def test_webhooks_that_come_in(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    monkeypatch.setenv("SENDER_KEY", key)
    ward, body, now = Ward(store), f'{{"type": "begun", "patient": "{PLANTED}"}}', datetime.now(UTC)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(key).sign("msg_1", now, body),
    }
    async with ward.opened() as app:
        source = {"kind": "standard_webhooks", "secrets": "env:SENDER_KEY", "unique_for": "1h"}
        await app.operations.save_source("visit", source, by="ada")
        asgi = make_asgi(
            app,
            hosts=("*",),
            login=True,
            clock=SystemClock(),
            redaction=app.settings.redaction,
            payload_limit=app.settings.payload_limit,
        )
        answers = [
            await Client(asgi).send("POST", "/in/visit", body=body.encode(), headers=headers)
            for _ in range(2)
        ]
        await app.drain()

    assert [(one.status, one.json["is_duplicate"]) for one in answers] == [
        (200, False),
        (200, True),
    ]
    assert ward.got == [{"type": "begun", "patient": PLANTED}]
    assert await ward.telling() == []


async def test_what_is_tracked_and_what_the_journal_has_of_it(store: str, tmp_path: Path) -> None:
    """Refused by its destination it is in the store; without a store it is in the journal."""
    journal, tracking = tmp_path / "journal", Tracking(rate=None, flush_limit="1s")
    ward = Ward(store, journal=journal, tracking=tracking)
    ward.app.destination("dead", "page.*", transport=Dead())
    away = Redrive(f"sqlite:///{tmp_path}/nowhere/x.db", journal=journal, tracking=tracking)
    async with ward.opened() as app:
        app.track("page.seen", PAYLOAD)
        app.track("visit.begun", PAYLOAD)
        figures = await app.flush()
        await app.drain()

        away.track("visit.over", PAYLOAD)
        await away.close()
        files = [one.read_text() for one in journal.iterdir() if one.is_file()]
        done = await app.operations.drain_journal(any_store=True)
        await app.drain()
        page = await app.operations.deliveries(Query(status=Status.PENDING, destination="dead"))

    assert figures.stored >= 1
    assert figures.is_balanced
    assert "~k1:" in "".join(files)
    assert PLANTED not in "".join(files)
    assert (done.records, done.left) == (1, ())
    assert len(page.deliveries) == 1
    assert ward.got == [PAYLOAD] * 2
    assert await ward.telling() == []


@pytest.mark.parametrize("keys_file", ["", "nowhere.keys"])
async def test_without_the_key_what_is_tracked_is_dropped_and_told_of(
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    keys_file: str,
) -> None:
    monkeypatch.setenv("REDRIVE_KEYS", KEY)
    async with Ward(sqlite_url).opened():
        pass
    monkeypatch.delenv("REDRIVE_KEYS")
    journal = tmp_path / "journal"
    ward = Ward(sqlite_url, journal=journal, tracking=Tracking(rate=None), keys_file=keys_file)
    ward.app.destination("dead", "page.*", transport=Dead())
    async with ward.app as app:
        app.track("page.seen", PAYLOAD)
        figures = await app.flush()
        with pytest.raises(SecretError, match=r"the key 'k1'|nowhere.keys, cannot be read"):
            await app.publish("visit.begun", PAYLOAD)

    assert (figures.waiting, figures.dropped) == (0, {"journal": 1})
    assert caplog.text.count("1 tracked events are lost") == 1
    assert "Traceback" not in caplog.text
    assert PLANTED not in "".join(one.read_text() for one in journal.glob("*.jsonl"))


@pytest.mark.parametrize("keys_file", ["", "nowhere.keys"])
async def test_a_journal_waits_for_who_has_the_key(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_file: str
) -> None:
    """Whatever was written by who had no keys and did not reach the store is not refused."""
    journal = tmp_path / "journal"
    away = Redrive(f"sqlite:///{tmp_path}/nowhere/x.db", journal=journal)
    await away.publish("visit.begun", PAYLOAD, journal=True)
    await away.close()
    monkeypatch.setenv("REDRIVE_KEYS", KEY)
    async with Ward(sqlite_url).opened():
        pass

    monkeypatch.delenv("REDRIVE_KEYS")
    async with Ward(sqlite_url, journal=journal, keys_file=keys_file).app as app:
        kept = await app.operations.drain_journal(any_store=True)
    monkeypatch.setenv("REDRIVE_KEYS", KEY)
    ward = Ward(sqlite_url, journal=journal)
    async with ward.app as app:
        done = await app.operations.drain_journal(any_store=True)
        await app.drain()

    assert (kept.records, len(kept.left)) == (0, 1)
    assert "Nothing was changed" in kept.left[0].why
    assert (done.records, done.left, ward.got) == (1, (), [PAYLOAD])


async def test_projections_get_it_plain_and_park_it_sealed(store: str) -> None:
    ward = Ward(store)
    applied: list[object] = []

    async def apply(event: Event[Any], model: ReadModel) -> None:
        assert model.connection
        applied.append(event.payload)
        if event.payload.get("is_bad"):
            raise ValueError(f"cannot apply {event.payload}")

    ward.app.projection("stay.*", name="stays", retry=Retry(max_attempts=1))(apply)
    async with ward.opened() as app:
        await app.publish("stay.begun", PAYLOAD | {"is_bad": True}, key="a")
        await app.publish("stay.over", PAYLOAD, key="a")
        await app.drain()
        assert applied == [PAYLOAD | {"is_bad": True}] * 2  # among others, and by itself
        [letter] = (await app.operations.dead_letters()).deliveries
        assert letter.fault is not None
        assert PLANTED in letter.fault.message
        assert await ward.telling() == []

        await app.operations.edit(letter.id, PAYLOAD | {"is_bad": False}, by="ada", why="mended")
        await app.drain()

        assert applied[2:] == [PAYLOAD | {"is_bad": False}, PAYLOAD]
        assert await ward.telling() == []


async def test_the_log_of_requests(store: str) -> None:
    ward = Ward(store)
    async with receiving() as receiver, ward.opened() as app:
        receiver.always(answer(422, f"no customer {PLANTED}"))
        crm = {"url": receiver.url, "allow_private": True, "request_log": {"keep": 50}}
        rules = {"orders": {"service": "crm", "event": "order.*"}}
        document = GatewayDocument(services={"crm": crm}, rules=rules)
        await app.operations.apply_gateway(document, by="ada")
        await app.publish("order.paid", PAYLOAD)
        await app.drain(services=True)
        [logged] = await app.operations.request_log("crm")
        [request] = receiver.requests

    assert PLANTED in logged.error
    assert PLANTED.encode() in request.body
    assert await ward.telling() == []


async def test_readers_of_the_log(store: str) -> None:
    ward = Ward(store)
    async with ward.opened() as app:
        await app.publish("visit.begun", PAYLOAD, key="a", headers={"note": PLANTED})
        read = await app.log.read()
        history = await app.log.history("a")
        followed = [one async for one in _first(app, 1)]

    for [one] in (read, history, followed):
        assert (one.event.payload, one.event.headers) == (PAYLOAD, {"note": PLANTED})
    assert await ward.telling() == []


async def _first(app: Redrive, count: int) -> AsyncIterator[Any]:
    async for one in app.log.subscribe():
        yield one
        count -= 1
        if not count:
            return


async def test_a_backfill(store: str) -> None:
    early = Ward(store)
    async with early.opened() as app:
        await app.publish("visit.begun", PAYLOAD)
        await app.drain()
    late = Ward(store)
    got: list[object] = []

    @late.app.handler("visit.*", name="late")
    async def take(event: Event[Any]) -> None:
        got.append(event.payload)

    async with late.app as app:
        done = await app.operations.backfill("late", by="ada", why="it is new")
        await app.drain()

    assert done.added == 1
    assert got == [PAYLOAD]
    assert await late.telling() == []


async def test_an_export_is_imported_by_another_process_that_has_the_key(
    store: str, tmp_path: Path
) -> None:
    file, ward = tmp_path / "letters.jsonl", Ward(store)
    ward.is_mended = False
    async with ward.opened() as app:
        await app.publish("visit.begun", PAYLOAD)
        await app.drain()
        assert _redrive(store, "dlq", "export", "--file", str(file)).returncode == 0
        [letter] = (await app.operations.dead_letters()).deliveries
        await app.operations.delete([letter.id], by="ada", why="it is in the file")

        refused = _redrive(store, "dlq", "import", str(file), keys="")
        done = _redrive(store, "dlq", "import", str(file))
        [back] = (await app.operations.dead_letters()).deliveries
        ward.is_mended = True
        await app.operations.replay([back.id], by="ada")
        await app.drain()

    assert PLANTED not in file.read_text()
    assert refused.returncode != 0
    assert "encrypted by the key 'k1'" in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert ward.got == [PAYLOAD] * 2
    assert await ward.telling() == []


async def test_on_changed_and_off_while_a_worker_runs_and_others_publish(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward, publisher, clerk = Ward(store), Redrive(store), Redrive(store)
    numbers = itertools.count()
    told: list[list[str]] = []

    async def publish_until(is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await publisher.publish("visit.begun", PAYLOAD | {"n": next(numbers)})

    async with ward.app as app, publisher, clerk, app.worker():
        await publisher.publish("visit.begun", PAYLOAD | {"n": next(numbers)})
        for keys in (KEY, f"{NEXT_KEY},{KEY}", None):
            over, before = asyncio.Event(), len(ward.got)
            async with asyncio.TaskGroup() as group:
                group.create_task(publish_until(over))
                if keys is None:
                    await clerk.operations.decrypt(by="ada", why="the disk is encrypted")
                else:
                    monkeypatch.setenv("REDRIVE_KEYS", keys)
                    await clerk.operations.encrypt(by="ada", why="names of patients")
                await eventually(lambda b=before: len(ward.got) > b + 3, what="work goes on")  # type: ignore[misc]
                over.set()
            now = await clerk.operations.finish_encryption()
            assert now is not None
            assert not now.is_under_way
            rows = str(await rows_of(store))
            told.append([one for one in (PLANTED, "~k1:", "~k2:") if one in rows])
        last = next(numbers)
        await eventually(lambda: len(ward.got) >= last, what="all are delivered")

    assert told == [["~k1:"], ["~k2:"], [PLANTED]]
    assert sorted(one["n"] for one in ward.got) == list(range(last))  # type: ignore[index]


async def test_a_walk_that_is_killed_is_finished_by_another_process(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward = Ward(store)
    async with ward.app as app:
        await app.publish_many([NewEvent(type="visit.begun", payload=PAYLOAD)] * 600)
        await app.operations.encrypt(by="ada", why="names of patients")
        killed = _python("-c", _KILLED, store)
        rows = await rows_of(store)
        half = Counter(PLANTED in one for one in rows["events.document"])
        await app.operations.finish_encryption()
        assert await ward.telling() == []
        await app.drain()

    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    assert sorted(half.values()) == [100, 500]
    assert ward.got == [PAYLOAD] * 600


_KILLED = """
import asyncio, itertools, os, signal, sys
from redrive import Redrive

steps = itertools.count()

async def walk():
    async with Redrive(sys.argv[1]) as app:
        def progress(count):
            if count == 500 and next(steps):  # that of deliveries, then that of events
                os.kill(os.getpid(), signal.SIGKILL)
        await app.operations.finish_encryption(progress=progress)

asyncio.run(walk())
"""


def _redrive(store: str, *arguments: str, keys: str = KEY) -> subprocess.CompletedProcess[str]:
    return _python("-m", "redrive", *arguments, "--store", store, keys=keys)


def _python(*arguments: str, keys: str = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "REDRIVE_KEYS": keys},
        capture_output=True,
        text=True,
        check=False,
    )
