"""The demo in a PostgreSQL database: the same story, in a schema that is gone when it is over."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from asyncpg.transaction import Transaction

from redrive import Redrive
from redrive.cli.main import main
from redrive.demo import perform
from redrive.demo.narrator import Scene
from redrive.demo.narrators.lines import Lines
from redrive.demo.venues.postgres import Postgres
from redrive.errors import StoreUnavailableError
from tests.servers.daemon import free_port
from tests.servers.postgres import Database
from tests.waiting import PATIENCE_SECONDS, eventually

FAST = 10.0
_SCHEMAS = r"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'redrive\_demo\_%'"
_VISITORS = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """The URL of the database for a user who may do nothing in it."""
    database.execute("CREATE ROLE demo_guest LOGIN PASSWORD 'guess-me'")
    parts = urlsplit(database.url)
    yield parts._replace(netloc=f"demo_guest:guess-me@{parts.hostname}:{parts.port}").geturl()
    database.execute("DROP ROLE demo_guest")


def test_the_whole_story_plays_and_nothing_is_left(database: Database) -> None:
    out = io.StringIO()

    code = perform(Lines(out), speed=FAST, store=f"{database.url}?schema=of_the_user")

    said = " ".join(out.getvalue().split())
    assert "lost: 0" in said
    assert code == 0, out.getvalue()
    assert "the PostgreSQL schema redrive_demo_" in said
    assert "in the middle of" in said
    assert "warehouse: breaker open for" in said
    assert "stopped itself: 1 letter sent" in said
    assert 'parcels "two" -> 2' in said
    assert "events read, caught up" in said
    assert database.value(_SCHEMAS) == 0
    assert database.value("SELECT to_regnamespace('of_the_user')") is None


def test_the_story_of_the_gateway_is_counted_before_its_schema_is_dropped(
    database: Database,
) -> None:
    out = io.StringIO()

    code = perform(Lines(out), speed=FAST, store=database.url, gateway=True)

    assert "lost: 0" in out.getvalue()
    assert code == 0, out.getvalue()
    assert database.value(_SCHEMAS) == 0


def test_broken_off_it_drops_its_schema(database: Database, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "demo", "--plain", "--store", database.url],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "delivered:" in line:
                break
        demo.send_signal(signal.SIGTERM)
        said, complaints = demo.communicate(timeout=PATIENCE_SECONDS)

    assert complaints == ""
    assert "Stopped before the end; the schema redrive_demo_" in said
    assert demo.returncode == 130
    assert database.value(_SCHEMAS) == 0


async def test_broken_off_within_an_order_it_drops_its_schema(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that had just begun would take the drop back when its connection closes."""
    begin = Transaction.start

    async def begin_and_break_off(self: Transaction) -> None:
        await begin(self)
        raise asyncio.CancelledError

    async def order() -> None:
        app = Redrive("memory://")
        async with Postgres(database.url, tmp_path / "redrive-demo-cut") as venue:
            await venue.furnish(app)
            monkeypatch.setattr(Transaction, "start", begin_and_break_off)
            async with venue.sale(app, 1, 9.5):
                pass

    with pytest.raises(asyncio.CancelledError):
        await order()

    assert database.value(_SCHEMAS) == 0


def test_no_process_of_it_shows_the_password(database: Database) -> None:
    """Arguments of processes can be read by everybody on the machine, and so can a screen."""
    parts = urlsplit(database.url)
    place = parts._replace(netloc=f"{parts.username}:s3cret@{parts.hostname}:{parts.port}")

    class Watcher(Lines):
        seen: str = ""

        def scene(self, scene: Scene) -> None:
            super().scene(scene)
            if scene.act == 2:
                children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
                for child in children.read_text("ascii").split():
                    self.seen += Path(f"/proc/{child}/cmdline").read_text("utf-8")
                raise asyncio.CancelledError

    watcher = Watcher(out := io.StringIO())
    perform(watcher, speed=FAST, store=place.geturl())

    assert "redrive.demo.child" in watcher.seen
    assert "s3cret" not in watcher.seen + out.getvalue()
    assert "export PGPASSWORD=...; export REDRIVE_STORE=" in out.getvalue()


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://127.0.0.1:{free_port()}/shop"

    assert main(["demo", "--store", url]) == 3

    assert "cannot be reached" in _sentence(capsys)


def test_a_database_that_is_not_there_is_told(
    capsys: pytest.CaptureFixture[str], database: Database
) -> None:
    url = urlsplit(database.url)._replace(path="/no_such").geturl()

    assert main(["demo", "--store", url]) == 3

    assert "has no such database" in _sentence(capsys)


def test_a_user_who_may_create_no_schema_is_told(
    capsys: pytest.CaptureFixture[str], role: str
) -> None:
    assert main(["demo", "--store", role]) == 3

    said = _sentence(capsys)
    assert "This user may not do that" in said
    assert "permission denied for database" in said
    assert "guess-me" not in said


def test_another_kind_of_store_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--store", "sqlite:///shop.db"]) == 2

    assert "such as postgresql://localhost/shop" in _sentence(capsys)


async def test_a_schema_that_cannot_be_dropped_is_named(database: Database, tmp_path: Path) -> None:
    venue = Postgres(database.url, tmp_path / "redrive-demo-kept")

    with pytest.raises(StoreUnavailableError, match="DROP SCHEMA redrive_demo_kept CASCADE"):
        async with venue:
            database.execute("DROP SCHEMA redrive_demo_kept CASCADE")

    # The server hears a moment later that they have gone.
    await eventually(lambda: not database.value(_VISITORS), what="all visitors gone")


def _sentence(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return " ".join(err.split())
