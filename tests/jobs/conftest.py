"""A broker for each test of a job library, and how its programs are run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.servers.brokers import Valkey, a_broker
from tests.waiting import until


class Bench:
    """A folder, a broker, and the worker processes of a test."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JOBS_FOLDER": str(folder),
            "JOBS_BROKER": url,
        }
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a worker: `python -m` with these."""
        with (self.folder / "log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._workers.append(worker)
        return worker

    def run(self, *arguments: str) -> str:
        """Run a program to its end, and return what it said."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lines(self, name: str) -> list[str]:
        """Return what the jobs have written under a name."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def until(self, name: str, *kinds: str) -> None:
        """Wait until the jobs have written these."""
        until(
            lambda: sorted(self.lines(name)) == sorted(kinds),
            what=f"{name} is {kinds}:\n{(self.folder / 'log').read_text()[-3000:]}",
        )

    def end(self) -> None:
        """End the workers as one does who deploys."""
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                raise
        self._workers.clear()


def install_arq() -> Path:
    """Return where arq is, with the redis-py that it needs: an older one than all others have."""
    folder = Path(sys.prefix) / "arq"
    with (Path(sys.prefix) / "arq.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one test process at a time
        if not (folder / "arq").is_dir():
            wanted = str(ROOT / "tests" / "jobs" / "arq.txt")
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "install", "-qq", "--no-deps"),
                    *("--disable-pip-version-check", "--target", str(folder), "-r", wanted),
                ],
                check=True,
            )
    return folder


@pytest.fixture(scope="session")
def job_broker() -> Iterator[Valkey]:
    """A Valkey for the job libraries."""
    with a_broker(Valkey) as broker:
        broker.start()
        assert isinstance(broker, Valkey)
        yield broker


@pytest.fixture
def bench(tmp_path: Path, job_broker: Valkey, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A place of its own for each library: they do not share a database of the broker."""
    number = {"celery": 1, "dramatiq": 2, "rq": 3, "arq": 4}[request.param]
    bench = Bench(tmp_path, f"redis://127.0.0.1:{job_broker.port}/{number}")
    try:
        yield bench
    finally:
        bench.end()
