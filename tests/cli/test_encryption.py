"""The whole story of a failure while payloads are encrypted: a planted text is in no file."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg
import pytest

from redrive import Event, Redrive, Retry
from redrive.archive import open_archive
from redrive.errors import SecretError
from redrive.observers.logging import LoggingObserver, configure_logging
from redrive.store import Query
from redrive.stores.postgres.connection import read_address
from tests.cli.shell import Shell
from tests.servers.postgres import Cluster

PLANTED = "planted-name-of-a-patient"
WHY = ("--why", "names of patients")
KEYS = {f"k{one}": base64.b64encode(bytes([one]) * 32).decode() for one in (1, 2, 3)}


def keys(*ids: str) -> str:
    """Return keys as the variable has them."""
    return ",".join(f"{one}:{KEYS[one]}" for one in ids)


class Ward:
    """An app whose handler fails until it is mended, and says what it was given."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.is_mended = url, folder, False
        self.got: list[object] = []

    def app(self, **options: object) -> Redrive:
        """Return the app of one process."""
        app = Redrive(
            self.url,
            journal=str(self.folder / "journal"),
            export_folder=str(self.folder / "archive"),
            **options,  # type: ignore[arg-type]  # of the settings
        )

        @app.handler(
            "visit.*", retry=Retry(max_attempts=2, base="0s", cap="0s"), breaker=None, name="ward"
        )
        async def ward(event: Event[dict[str, str]]) -> None:
            self.got.append(event.payload)
            if not self.is_mended:
                raise ValueError(f"no bed for {event.payload['patient']} {event.headers}")

        app.observe(LoggingObserver(is_discreet=lambda: app.is_encrypted))
        return app


def files_with(text: str, *folders: Path) -> list[str]:
    """Return the files below some folders that say a text, as grep finds it."""
    found = subprocess.run(
        ["grep", "-rlaF", "--", text, *map(str, folders)],  # noqa: S607 - whichever there is
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode < 2, found.stderr
    return found.stdout.splitlines()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A file with all that is logged."""
    path = tmp_path / "redrive.log"
    handler = logging.FileHandler(path)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logging("debug", json=True)
    root.addHandler(handler)
    handler.setFormatter(root.handlers[0].formatter)
    yield path
    root.handlers[:], root.level = before[0], before[1]
    handler.close()


async def fail_and_look(ward: Ward) -> None:
    """Publish and fail, with a repeated publish; look at what has failed and why."""
    async with ward.app() as app:
        await app.operations.encrypt(by="ada", why="names of patients")
        for number in (0, 1, 2, 2):
            await app.publish(
                "visit.begun",
                {"patient": PLANTED, "number": str(number)},
                headers={"note": PLANTED},
                idempotency_key=f"visit-{number}",
            )
        await app.drain()
        letters = (await app.operations.dead_letters()).deliveries
        assert [PLANTED in one.fault.message for one in letters if one.fault] == [True] * 3
        [group] = await app.operations.groups()
        assert (group.count, PLANTED in group.message) == (3, True)


async def mend(ward: Ward) -> None:
    """Edit one letter, replay another, archive the third."""
    async with ward.app() as app:
        first, second, third = sorted(
            one.id for one in (await app.operations.dead_letters()).deliveries
        )
        ward.is_mended = True
        await app.operations.edit(
            first, {"patient": PLANTED, "bed": "7"}, by="ada", why="a bed was found"
        )
        await app.operations.replay([second], by="ada")
        await app.drain()
        assert {"patient": PLANTED, "bed": "7"} in ward.got
        [letter] = [one async for one in app.operations.export()]
        assert letter.delivery.id == third
        archive = open_archive(str(ward.folder / "archive"), seal=app._stores.seal)  # noqa: SLF001 - as workers are given it
        assert archive is not None
        archive.add("ward", [letter], now=letter.delivery.due)
        assert await app.operations.delete([third], by="ada", why="it is in the file")


async def journal(ward: Ward) -> None:
    """Publish into the journal, as a process that has the keys and does not reach the store."""
    away = Redrive(
        f"sqlite:///{ward.folder}/nowhere/store.db", journal=str(ward.folder / "journal")
    )
    receipt = await away.publish("visit.begun", {"patient": PLANTED}, journal=True)
    assert receipt.is_journaled
    await away.close()


async def drain_journal(ward: Ward) -> None:
    """Give the journal to the store, without its key first."""
    async with ward.app() as app:
        os.environ["REDRIVE_KEYS"] = keys("k2")
        left = await app.operations.drain_journal(any_store=True)
        assert (left.records, len(left.left)) == (0, 1)
        os.environ["REDRIVE_KEYS"] = keys("k1")
        done = await app.operations.drain_journal(any_store=True)
        assert (done.records, done.damaged, done.left) == (1, 0, ())
        await app.drain()
        assert ward.got[-1] == {"patient": PLANTED}


def tell_the_story(ward: Ward, shell: Shell) -> None:
    """Go through all of it, by code and by commands."""
    asyncio.run(fail_and_look(ward))
    assert shell("dlq", "export", "--file", str(ward.folder / "whole.jsonl")).code == 0
    asyncio.run(mend(ward))
    back = shell("dlq", "import", str(ward.folder / "whole.jsonl"), "--json")
    assert (back.code, len(back.json["imported"]), back.json["bad"]) == (0, 1, [])
    asyncio.run(journal(ward))
    assert files_with(PLANTED, ward.folder / "journal") == []
    asyncio.run(drain_journal(ward))
    found = asyncio.run(_letters(ward))
    assert [PLANTED in one for one in found] == [True]


async def _letters(ward: Ward) -> list[str]:
    async with ward.app() as app:
        return [bytes(one.event.payload).decode() async for one in app.operations.export(Query())]


def test_a_planted_text_is_in_no_file_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell, log: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ward.db"
    monkeypatch.setenv("REDRIVE_STORE", url)
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))
    ward = Ward(url, tmp_path)
    asyncio.run(_open(ward))
    with _looking_on(tmp_path / "ward.db"):
        tell_the_story(ward, shell)
        names = {one.name for one in tmp_path.rglob("*")}

        assert files_with(PLANTED, tmp_path) == []

    assert {"ward.db", "ward.db-wal", "whole.jsonl", "archive", "journal", log.name} <= names
    assert "no bed" not in log.read_text()
    assert "dead letter" in log.read_text()


def test_a_planted_text_is_in_no_file_of_postgresql(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
    log: Path,
    postgres_cluster: Cluster,
) -> None:
    monkeypatch.setenv("REDRIVE_STORE", postgres_cluster.url)
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))

    tell_the_story(Ward(postgres_cluster.url, tmp_path), shell)
    asyncio.run(_checkpoint(postgres_cluster.url))

    assert files_with("visit.begun", postgres_cluster.folder / "data") != []
    assert files_with(PLANTED, tmp_path, postgres_cluster.folder / "data") == []
    assert "dead letter" in log.read_text()


def test_without_encryption_the_text_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path
) -> None:
    """Or the tests above could not fail."""
    monkeypatch.delenv("REDRIVE_KEYS", raising=False)
    ward = Ward(f"sqlite:///{tmp_path}/ward.db", tmp_path)

    async def story() -> None:
        async with ward.app() as app:
            await app.publish("visit.begun", {"patient": PLANTED})
            await app.drain()

    asyncio.run(story())
    asyncio.run(journal(ward))

    found = {Path(one).suffix for one in files_with(PLANTED, tmp_path)}
    assert found == {".db", ".jsonl", log.suffix}


def test_a_redacted_export_is_for_people_and_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    url = f"sqlite:///{tmp_path}/ward.db"
    monkeypatch.setenv("REDRIVE_STORE", url)
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))
    asyncio.run(fail_and_look(Ward(url, tmp_path)))

    assert PLANTED in shell("dlq", "export", "--redacted").out
    assert PLANTED not in shell("dlq", "export").out
    monkeypatch.setenv("REDRIVE_KEYS", keys("k2"))
    refused = shell("dlq", "export")
    assert refused.code == 2
    assert "encrypted by the key 'k1', which is not among those here (k2)" in refused.err


def test_a_worker_without_the_key_does_not_begin_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    url = f"sqlite:///{tmp_path}/ward.db"
    monkeypatch.setenv("REDRIVE_STORE", url)
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))
    ward = Ward(url, tmp_path)
    asyncio.run(fail_and_look(ward))
    monkeypatch.delenv("REDRIVE_KEYS")

    async def work() -> None:
        async with ward.app() as app:
            with pytest.raises(SecretError, match=r"encrypted by the key 'k1'.*there is none"):
                await app.publish("visit.begun", {"patient": "x"})
            with pytest.raises(SecretError, match=r"encrypted by the key 'k1'.*there is none"):
                await app.drain()

    asyncio.run(work())
    doctor = shell("doctor", "--json")
    assert doctor.code != 0
    assert "This store is encrypted by the key 'k1'" in doctor.out
    assert "there is none" in shell("dlq", "list", "--json").out


def test_a_delivery_whose_key_is_missing_waits_for_it_and_does_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/ward.db"
    monkeypatch.setenv("REDRIVE_KEYS", keys("k2", "k1"))
    ward = Ward(url, tmp_path)
    ward.is_mended = True

    async def publish_by_both() -> None:
        async with ward.app() as app:
            monkeypatch.setenv("REDRIVE_KEYS", keys("k1", "k2"))
            await app.operations.encrypt(by="ada", why="names of patients")
            await app.publish("visit.begun", {"patient": "old"})
            monkeypatch.setenv("REDRIVE_KEYS", keys("k2", "k1"))
            await app.operations.encrypt(by="ada", why="once a year")
            await app.publish("visit.begun", {"patient": "new"})

    async def work() -> tuple[int, int]:
        async with ward.app() as app:
            await app.drain()
            figures = await app.operations.status()
            [one] = [one for one in figures.destinations if one.name == "ward"]
            return one.pending, one.failed

    asyncio.run(publish_by_both())
    monkeypatch.setenv("REDRIVE_KEYS", keys("k2"))

    assert asyncio.run(work()) == (1, 0)
    assert ward.got == [{"patient": "new"}]


def test_encryption_is_begun_changed_and_ended_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("REDRIVE_STORE", f"sqlite:///{tmp_path}/ward.db")
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))
    asyncio.run(_open(Ward(f"sqlite:///{tmp_path}/ward.db", tmp_path)))

    assert "as they are" in shell("encryption", "show").out
    assert "by the key k1, all of them" in shell("encryption", "on", *WHY, "--wait").out
    monkeypatch.setenv("REDRIVE_KEYS", keys("k2", "k1"))
    begun = shell("encryption", "on", *WHY, "--json")
    assert begun.json["encryption"]["key_id"] == "k2"
    assert "by the key k2, all of them" in shell("encryption", "finish").out
    assert shell("encryption", "off", *WHY, "--wait").code == 0
    assert "as they are" in shell("encryption", "show").out
    assert shell("encryption", "on").code == 2
    assert [one["action"] for one in shell("audit", "--json").json["entries"]][:3] == [
        "decrypt",
        "encrypt",
        "encrypt",
    ]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_doctor_names_every_key_that_is_still_needed_and_not_here(
    kind: str, request: pytest.FixtureRequest, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    monkeypatch.setenv("REDRIVE_STORE", url)
    monkeypatch.setenv("REDRIVE_KEYS", keys("k1"))
    asyncio.run(_schedule(url))
    assert shell("encryption", "on", "--wait", *WHY).code == 0
    for ids in (("k2", "k1"), ("k3", "k2", "k1")):
        monkeypatch.setenv("REDRIVE_KEYS", keys(*ids))
        assert shell("encryption", "on", *WHY).code == 0

    under_way = shell("encryption", "show").out
    monkeypatch.setenv("REDRIVE_KEYS", keys("k3", "k1"))
    one_missing = shell("doctor").out
    monkeypatch.setenv("REDRIVE_KEYS", keys("k3"))
    two_missing = shell("doctor").out
    monkeypatch.setenv("REDRIVE_KEYS", keys("k3", "k2", "k1"))
    none_missing = shell("doctor").out
    assert shell("encryption", "finish").code == 0
    monkeypatch.setenv("REDRIVE_KEYS", keys("k3"))
    finished = shell("doctor").out

    assert "Until then the keys k1, k2 must stay." in " ".join(under_way.split())
    assert _missing(one_missing) == ["k2"]
    assert "up to" in one_missing
    assert _missing(two_missing) == ["k1", "k2"]
    assert "Schedules were not looked at" in " ".join(two_missing.split())
    assert _missing(none_missing) == _missing(finished) == []


def _missing(told: str) -> list[str]:
    return re.findall(r"The key '(\w+)' is not among those here", " ".join(told.split()))


async def _schedule(url: str) -> None:
    """Have a schedule, and an event that was tried."""
    app = Redrive(url)
    app.schedule("0 3 * * *", "visit.begun", payload={"patient": PLANTED})

    @app.handler("visit.*")
    async def ward(_: Event[dict[str, str]]) -> None: ...

    async with app:
        await app.publish("visit.begun", {"patient": PLANTED})
        await app.drain()


async def _open(ward: Ward) -> None:
    async with ward.app():
        pass


async def _checkpoint(url: str) -> None:
    connection = await asyncpg.connect(read_address(url).dsn)
    await connection.execute("CHECKPOINT")
    await connection.close()


@contextmanager
def _looking_on(path: Path) -> Iterator[None]:
    """Have the file open, so that nobody who closes it removes its log."""
    connection = apsw.Connection(str(path))
    connection.execute("SELECT count(*) FROM redrive_events").fetchall()
    yield
    connection.close()
