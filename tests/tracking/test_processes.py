"""Processes that track, and end: in order, by SIGTERM, by SIGKILL, and in two by a fork."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.clock import SystemClock
from redrive.journal.draining import drain_folder
from redrive.journal.folder import FileState, files_of
from redrive.journal.line import TriedRecord
from redrive.journal.writer import JournalWriter
from redrive.model.delivery import Leased, Status
from redrive.model.outcome import Outcome
from redrive.store import Query, Rest, Tried
from tests.conformance.world import an_event
from tests.docs.pages import ROOT

CAPACITY = 500


def start(how: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.tracking.program", how, str(folder), url(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/shop.db"


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split("\n")[:-1] if path.exists() else []


async def kept(folder: Path, destination: str) -> list[str]:
    """Return the events that are in the store or the journal, once that is drained."""
    app = Redrive(url(folder))
    async with app:
        store = await app._store()  # noqa: SLF001 - to drain as a process that tracks does
        await drain_folder(folder / "journal", store)
        assert sum(one.waiting for one in files_of(folder / "journal")) == 0
        page = await store.find(
            Query(status=Status.PENDING, destination=destination), limit=100_000
        )
    return [one.event_id for one in page.deliveries]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_loses_nothing_but_sigkill_the_buffer(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start("forever", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"

    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == -number
    tracked = set(lines(tmp_path, "tracked-forever"))
    arrived = lines(tmp_path, "notes-forever")
    left = await kept(tmp_path, "notes")
    lost = tracked - {*arrived, *left}
    assert len(lost) <= (0 if number is signal.SIGTERM else 2 * CAPACITY)
    assert len(arrived) == len(set(arrived))
    if number is signal.SIGTERM:
        assert set(arrived).isdisjoint(left)


async def test_sigterm_with_a_hung_destination_loses_nothing(tmp_path: Path) -> None:
    process = start("hung", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"

    process.terminate()
    process.communicate(timeout=30)

    tracked = set(lines(tmp_path, "tracked-hung"))
    assert tracked <= set(await kept(tmp_path, "hung"))
    assert tracked <= {*lines(tmp_path, "notes-hung"), *await kept(tmp_path, "notes")}


async def test_sigterm_within_track_loses_nothing(tmp_path: Path) -> None:
    process = start("within", tmp_path)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM
    tracked = set(lines(tmp_path, "tracked-within"))
    assert tracked <= set(await kept(tmp_path, "hung"))
    assert tracked <= {*lines(tmp_path, "notes-within"), *await kept(tmp_path, "notes")}


async def test_the_end_of_a_program_sends_what_is_left(tmp_path: Path) -> None:
    process = start("exit", tmp_path)
    process.communicate(timeout=30)

    assert process.returncode == 3
    tracked = lines(tmp_path, "tracked-exit")
    assert len(tracked) == 300
    assert sorted([*lines(tmp_path, "notes-exit"), *await kept(tmp_path, "notes")]) == tracked


def test_a_fork_shares_nothing(tmp_path: Path) -> None:
    process = start("fork", tmp_path)
    said, _ = process.communicate(timeout=60)

    assert said == "child 0 parent 20\n"
    assert len(lines(tmp_path, "notes-fork")) == 30


async def test_a_drain_that_is_killed_twice_in_the_middle_gives_each_record_once(
    tmp_path: Path,
) -> None:
    app = Redrive(url(tmp_path), journal=tmp_path / "journal")
    app.destination("notes", "order.*", transport=Nowhere())
    async with app:
        await app.operations.status()
    writer = JournalWriter(tmp_path / "journal", clock=SystemClock(), host="web-1")
    events = [an_event({"n": number}) for number in range(700)]
    rest = (Rest(destination="notes"),)
    writer.append([TriedRecord(tried=Tried(event=one, rest=rest)) for one in events])
    writer.let_go()

    codes = [await drain_and_die(tmp_path, batches=batches) for batches in (2, 1, 99)]

    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    stored = await kept(tmp_path, "notes")
    assert sorted(stored) == sorted(one.id for one in events)
    assert [one.state for one in files_of(tmp_path / "journal")] == [FileState.DRAINED]


async def drain_and_die(folder: Path, *, batches: int) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tracking.dying", folder / "journal", url(folder)),
        str(batches),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return await process.wait()


class Nowhere:
    batch = 1

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        raise AssertionError(deliveries)
