"""Whether the SQLite file is well."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from redrive import Redrive
from redrive.clock import SystemClock
from redrive.model.destination import Destination
from redrive.store import Finding, Level
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore, checkup
from redrive.stores.sqlite.checkup import check_up, file_system_of
from redrive.stores.sqlite.schema import LATEST
from redrive.testing.clock import FakeClock
from tests.conformance import an_event, entries

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:40 / {point} rw - {kind} server:/share rw
"""


class Usage(NamedTuple):
    total: int
    used: int
    free: int


async def test_what_waits_for_nobody_is_told(tmp_path: Path) -> None:
    """As a worker of another release might leave it."""
    app = Redrive(f"sqlite:///{tmp_path / 'redrive.db'}")
    app.handler("order.*", name="ledger", order="park")(lambda _: None)
    async with app:
        for _ in range(3):
            await app.publish("order.paid", key="k")
        assert not [one for one in await app.operations.examine() if "behind nobody" in one.what]
        connection = apsw.Connection(str(tmp_path / "redrive.db"))
        connection.execute("UPDATE redrive_deliveries SET is_behind = 1")
        connection.close()

        [finding] = [one for one in await app.operations.examine() if "behind nobody" in one.what]

        assert finding.level is Level.ERROR
        assert "1 delivery waits behind nobody (1)" in finding.what
        await app.operations.cancel([1], by="ada", why="stuck")
        await app.operations.replay([1], by="ada")
        assert (await app.drain()).delivered == 3


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "redrive.db"
    store = SqliteStore(path, clock=FakeClock(NOW))
    await store.open()
    await store.register([Destination(name="billing", patterns=("*",))])
    await store.append(entries(an_event()), routes_version=1, all_or_nothing=True)
    await store.close()
    return path


def serious(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is not Level.OK]


async def test_a_store_knows_its_schema_once_it_is_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "redrive.db", clock=SystemClock())
    before = store.schema_version

    await store.open()

    assert (before, store.schema_version) == (0, LATEST)
    assert serious(await store.check()) == []
    await store.close()


async def test_a_store_in_memory_has_no_schema_and_is_well() -> None:
    store = MemoryStore(FakeClock())

    assert store.schema_version == 0
    assert serious(await store.check()) == []


def test_a_sound_file_is_well(path: Path) -> None:
    found = check_up(path, now=NOW)

    assert serious(found) == []
    assert any(f"schema version {LATEST} is current" in finding.what for finding in found)


def test_a_lock_that_is_held_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_LOCK_MILLISECONDS", 1)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    (finding,) = serious(check_up(path, now=NOW))

    other.close()
    assert finding.level is Level.WARNING
    assert "held the write lock" in finding.what


@pytest.mark.parametrize(
    ("free", "level"), [(2**29, Level.WARNING), (2**20, Level.ERROR), (0, Level.ERROR)]
)
def test_little_room_is_told(
    free: int, level: Level, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 2**40 - free, free))

    (finding,) = serious(check_up(path, now=NOW))

    assert finding.level is level
    assert "of room" in finding.what


def test_a_clock_that_was_set_back_is_told(path: Path) -> None:
    (finding,) = serious(check_up(path, now=NOW - timedelta(minutes=1)))

    assert finding.level is Level.ERROR
    assert "60 s in the future" in finding.what


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_told(kind: str, path: Path, tmp_path: Path) -> None:
    """SQLite's locks do not hold there, and the file can be damaged."""
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(point=tmp_path.resolve(), kind=kind))

    (finding,) = serious(check_up(path, now=NOW, mounts=mounts))

    assert finding.level is Level.ERROR
    assert f"network file system ({kind})" in finding.what


def test_a_network_file_system_elsewhere_is_no_matter(path: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(point="/mnt/backup", kind="nfs4"))

    assert serious(check_up(path, now=NOW, mounts=mounts)) == []


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    folder = tmp_path / "with blank" / "below"
    folder.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    escaped = str(tmp_path.resolve() / "with blank").replace(" ", "\\040")
    mounts.write_text(MOUNTS.format(point=escaped, kind="cifs"))

    assert file_system_of(folder / "shop.db", mounts) == "cifs"
    assert file_system_of(tmp_path / "shop.db", mounts) == "ext4"
    assert file_system_of(folder, tmp_path / "missing") == ""


def test_a_large_log_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_LARGE_LOG", 1)
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT * FROM redrive_events")
    writer = apsw.Connection(str(path))
    writer.execute("INSERT INTO redrive_workers (id, seen_at) VALUES ('w1', 0)")

    (finding,) = serious(check_up(path, now=NOW))

    reader.close()
    writer.close()
    assert "write-ahead log" in finding.what
