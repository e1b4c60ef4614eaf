"""One machine: a store, and the real processes that work on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from redrive import NewEvent, Operations, Query, Receipt, Redrive
from redrive.model.delivery import Delivery, Status
from redrive.model.event import EventId
from redrive.store import DestinationFigures, Figures
from tests.faults import apps
from tests.waiting import PATIENCE_SECONDS, until

__all__ = ["ROOT", "Child", "Machine", "is_running", "on_each_store", "until"]

ROOT = Path(__file__).parents[2]

on_each_store = pytest.mark.parametrize("machine_store", ["sqlite", "postgres"], indirect=True)
"""For tests whose machine has a store of each kind that processes share, one after the other."""


class Child:
    """A process and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    def send(self, word: signal.Signals) -> None:
        self.process.send_signal(word)

    def hears(self) -> bool:
        """Tell whether it has taken the signals that were sent to it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        pending = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd")]
        return int(pending[0], 16) == 0

    def wait(self, *, within: float = PATIENCE_SECONDS) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Still running after {within} s:\n{self.output}") from None

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()


class Machine:
    """Starts processes, publishes and looks, all on one store: a SQLite file, or the one named."""

    def __init__(self, folder: Path, app: str, store: str | None = None) -> None:
        self.folder = folder
        if store is not None:
            (folder / "store-url").write_text(store, "utf-8")
        self.store = apps.store_url(folder)
        self.app: Redrive = getattr(apps, app)(folder)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "REDRIVE_TEST_APP": app,
            "REDRIVE_TEST_FOLDER": str(folder),
        }
        self._children: list[Child] = []

    def start(self, *arguments: str, **environment: str) -> Child:
        """Start Python with these arguments."""
        log = self.folder / f"process-{len(self._children) + 1}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        child = Child(process, log)
        self._children.append(child)
        return child

    def start_worker(self, *options: str, **environment: str) -> Child:
        """Start `redrive worker`."""
        command = ("-m", "redrive", "worker", "tests.faults.child:app")
        return self.start(*command, *options, **environment)

    def freeze(self, child: Child) -> None:
        """Stop a process; on SQLite between two of its writes: in one, it would lock others out."""

        def is_frozen() -> bool:
            child.send(signal.SIGSTOP)
            os.waitid(os.P_PID, child.process.pid, os.WSTOPPED)
            if self._can_write():
                return True
            child.send(signal.SIGCONT)
            until(self._can_write, what="the process has ended its write")
            return False

        until(is_frozen, what="the process was stopped between two of its writes")

    def _can_write(self) -> bool:
        if not self.store.startswith("sqlite:"):
            return True
        connection = apsw.Connection(str(self.folder / "store.db"))
        try:
            connection.set_busy_timeout(100)
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            return False
        finally:
            connection.close()
        return True

    def close(self) -> None:
        """End every process that is left, those of a supervisor too."""
        for child in self._children:
            if child.process.poll() is None:
                child.kill()
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.app.sync.close()

    def publish(self, payloads: Sequence[object], event_type: str = "thing.made") -> list[Receipt]:
        events = [NewEvent(type=event_type, payload=payload) for payload in payloads]
        return list(self.app.sync.publish_many(events))

    def publish_numbers(self, count: int) -> list[Receipt]:
        return self.publish([{"number": number} for number in range(count)])

    def figures(self) -> Figures:
        return self.app.sync.operate(Operations.status)

    def of(self, destination: str) -> DestinationFigures:
        return next(one for one in self.figures().destinations if one.name == destination)

    def deliveries(self, status: Status) -> Sequence[Delivery]:
        query = Query(status=status)
        return self.app.sync.operate(Operations.deliveries, query, limit=1000).deliveries

    def stored_ids(self) -> set[EventId]:
        """Return the ids of every event in the log."""
        events = self.app.sync.operate(Operations.events, limit=1_000_000)
        return {one.event.id for one in events}

    def journal(self, what: str) -> Counter[int]:
        """Count, by number, how often handlers wrote this word."""
        return Counter(number for word, number, _ in self._lines() if word == what)

    def story(self, number: int) -> list[str]:
        """Return the words that handlers wrote for a number, in order."""
        return [word for word, written, _ in self._lines() if written == number]

    def pids(self) -> list[int]:
        """Return the processes that ran handlers, in the order they appeared."""
        return list(dict.fromkeys(pid for _, _, pid in self._lines()))

    def is_settled(self) -> bool:
        return all(one.pending == one.in_flight == 0 for one in self.figures().destinations)

    def leases_have_run_out(self) -> bool:
        now = self.figures().now
        leases = [one.lease_until for one in self.deliveries(Status.IN_FLIGHT)]
        return bool(leases) and all(until is not None and until < now for until in leases)

    def until_written(self, what: str, count: int, *, within: float = PATIENCE_SECONDS) -> None:
        """Wait until handlers have written this word for that many numbers."""
        until(lambda: len(self.journal(what)) >= count, within=within, what=f"{count} {what}")

    def until_workers(self, count: int, *, within: float = PATIENCE_SECONDS) -> None:
        """Wait until that many workers were heard of."""
        until(lambda: len(self.figures().workers) == count, within=within, what=f"{count} workers")

    def until_settled(self, *, within: float = PATIENCE_SECONDS) -> float:
        return until(self.is_settled, within=within, what="everything delivered or failed")

    def _lines(self) -> list[tuple[str, int, int]]:
        try:
            text = (self.folder / "journal").read_text("utf-8")
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition("\n")
        lines = (line.split() for line in whole.splitlines())
        return [(word, int(number), int(pid)) for word, number, pid in lines]


def is_running(pid: int) -> bool:
    """Tell whether a process lives; one that nobody waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
