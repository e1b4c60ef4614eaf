"""`redrive worker --port`: real processes, asked while they work, block and stop."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from redrive import Redrive
from tests.servers.daemon import free_port
from tests.waiting import PATIENCE_SECONDS

SRC = Path(__file__).parents[2] / "src"
SHOP = """
import asyncio
import select
from redrive import Event, Redrive

app = Redrive("sqlite:///shop.db", poll="100ms")

@app.handler("order.waits")
async def patient(event: Event[str]) -> None:
    await asyncio.to_thread(read, event.payload)

@app.handler("order.blocks")
async def rude(event: Event[str]) -> None:
    with open(event.payload) as end:
        # A signal that comes just before a long call into C is heard only after it.
        while not select.select([end], [], [], 0.05)[0]:
            pass

def read(pipe: str) -> None:
    with open(pipe) as end:
        end.read()
"""


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def reasons(self) -> list[str]:
        return list(json.loads(self.body)["reasons"])


class Process:
    """A worker process in a folder with a shop, and its log as it is written."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        self.popen: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "redrive", "worker", "shop:app", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SRC)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read on in the log until a line fits."""
        log: Any = self.popen.stderr
        for line in log:
            self._lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"{pattern!r} never came in\n{''.join(self._lines)}")

    def read_port(self) -> int:
        """Return the port that was taken, once the worker works."""
        found = self.read_until(r"Health and metrics at http://127\.0\.0\.1:(\d+)")
        self.read_until("worker started")
        return int(found[1])

    def publish_pipe(self, event_type: str) -> IO[str]:
        """Let a handler wait for a pipe, and return its other end once it does."""
        pipe = self._folder / "pipe"
        os.mkfifo(pipe)
        publisher = Redrive(f"sqlite:///{self._folder}/shop.db")
        publisher.sync.publish(event_type, str(pipe))
        publisher.sync.close()
        return pipe.open("w", encoding="utf-8")  # returns when the other end is open

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.communicate()


def get(port: int, path: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()


def get_until(port: int, path: str, status: int) -> Answer:
    """Ask again and again; the time-out of the test ends it."""
    while (answer := get(port, path)).status != status:
        pass
    return answer


@pytest.fixture
def worker(folder: Path) -> Iterator[Process]:
    """One worker process whose endpoint has any free port."""
    process = Process(folder, "--port", "0")
    yield process
    process.end()


def test_a_worker_process_tells_that_it_is_ready_and_what_it_did(worker: Process) -> None:
    port = worker.read_port()

    ready = get_until(port, "/readyz", 200)
    live, metrics = [get(port, path) for path in ("/healthz", "/metrics")]

    assert (ready.status, live.status, metrics.status) == (200, 200, 200)
    assert b"\nredrive_store_up 1.0\n" in metrics.body
    assert b'redrive_deliveries_claimed_total{destination="patient"} 0.0' in metrics.body
    worker.popen.terminate()
    assert worker.popen.wait(PATIENCE_SECONDS) == 0


def test_a_worker_that_finishes_its_work_is_no_longer_ready(worker: Process) -> None:
    port = worker.read_port()
    with worker.publish_pipe("order.waits"):
        before = get_until(port, "/readyz", 200)

        worker.popen.terminate()
        after = get_until(port, "/readyz", 503)

        assert before.status == 200
        assert after.reasons == ["the worker is stopping"]
        assert get(port, "/healthz").status == 200
        assert b'destination="patient",status="in_flight"} 1.0' in get(port, "/metrics").body
    assert worker.popen.wait(PATIENCE_SECONDS) == 0


def test_a_handler_that_blocks_the_event_loop_keeps_nobody_from_asking(worker: Process) -> None:
    port = worker.read_port()
    with worker.publish_pipe("order.blocks"):
        live, metrics = get(port, "/healthz"), get(port, "/metrics")

        worker.popen.send_signal(signal.SIGTERM)
        ready = get_until(port, "/readyz", 503)

        assert (live.status, metrics.status) == (200, 200)
        assert b'destination="rude",status="in_flight"} 1.0' in metrics.body
        assert ready.reasons == ["the worker is stopping"]
    assert worker.popen.wait(PATIENCE_SECONDS) == 0


def test_each_process_of_several_has_the_next_port(folder: Path) -> None:
    first = two_free_ports()
    with ExitStack() as stack:
        process = Process(folder, "--port", str(first), "--processes", "2")
        stack.callback(process.end)

        ports = [process.read_port(), process.read_port()]

        assert ports == [first, first + 1]
        assert [get_until(port, "/readyz", 200).status for port in ports] == [200, 200]
        process.popen.terminate()
        assert process.popen.wait(PATIENCE_SECONDS) == 0


def test_a_port_that_is_taken_ends_the_worker_with_advice(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = Process(folder, "--port", str(taken.getsockname()[1]))

        process.read_until("cannot listen at .* Choose another port")

        assert process.popen.wait(PATIENCE_SECONDS) == 2
        process.end()


def test_ports_beyond_the_last_are_refused(folder: Path) -> None:
    process = Process(folder, "--port", "65535", "--processes", "2")

    process.read_until("port is 65535, and each of 2 processes takes one more")

    assert process.popen.wait(PATIENCE_SECONDS) == 2
    process.end()


def two_free_ports() -> int:
    """Return the first of two ports in a row that nobody uses now."""
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port
