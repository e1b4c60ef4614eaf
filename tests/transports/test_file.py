"""Files as destinations: whole lines, rotated, on the disk, also when the disk is full."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import pytest

from redrive import Redrive, Retry
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.model.outcome import Faulted, Nature, Succeeded
from redrive.policies.terms import Terms
from redrive.testing import Kit
from redrive.transport import Transport
from redrive.transports.file import FileOptions, file
from tests.conformance.transports import a_delivery
from tests.docs.pages import ROOT, table_of


def built(path: Path, **options: Unpack[FileOptions]) -> Transport:
    return file(str(path), **options).build(terms=Terms(), clock=SystemClock())


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def test_a_line_tells_of_the_event_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    app, path = Redrive("memory://"), tmp_path / "events.jsonl"
    app.destination("log", "order.*", transport=file(str(path)))

    async with app:
        receipt = await app.publish("order.paid", {"order": 42}, key="order-42", tenant="acme")
        tally = await app.drain()

    [line] = lines_of(path)
    assert tally.delivered == 1
    assert (line["id"], line["type"]) == (receipt.event_id, "order.paid")
    assert (line["payload"], line["key"], line["tenant"]) == ({"order": 42}, "order-42", "acme")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_payload_is_one_line_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    transport = built(path, body="payload")

    await transport.send([a_delivery(1, b'{\n  "order": 42\n}')])

    assert path.read_bytes() == b'{"order":42}\n'


async def test_a_new_file_is_begun_before_one_grows_too_large(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    line = len(b'{"order":42}\n')
    transport = built(path, body="payload", rotate_bytes=2 * line, keep=2)

    for number in range(1, 10):
        await transport.send([a_delivery(number)])

    olds = [one for one in files_in(tmp_path) if one != path]
    assert path.read_bytes() == b'{"order":42}\n'
    assert [one.read_bytes() for one in olds] == [b'{"order":42}\n' * 2] * 2


async def test_nothing_is_removed_unless_it_is_said_how_many_to_keep(tmp_path: Path) -> None:
    transport = built(tmp_path / "events.jsonl", rotate_bytes=1)

    for number in range(1, 6):
        await transport.send([a_delivery(number)])

    assert sorted(one["id"] for path in files_in(tmp_path) for one in lines_of(path)) == [
        a_delivery(number).event.id for number in range(1, 6)
    ]


async def test_two_workers_share_a_file_that_is_rotated_under_them(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    workers = [built(path, rotate_bytes=300) for _ in range(2)]

    for number in range(1, 41):
        await workers[number % 2].send([a_delivery(number)])

    found = sorted(one["id"] for path in files_in(tmp_path) for one in lines_of(path))
    assert found == [a_delivery(number).event.id for number in range(1, 41)]


async def test_what_a_crash_has_left_of_a_line_is_ended_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"half')

    await built(path, body="payload").send([a_delivery(1)])

    assert path.read_bytes() == b'{"half\n{"order":42}\n'


async def test_a_full_disk_leaves_no_half_of_a_line_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    transport = built(path, body="payload")
    await transport.send([a_delivery(1)])
    written = os.write

    def full(opened: int, data: bytes) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(opened, data[:5])

    monkeypatch.setattr(os, "write", full)
    [outcome] = await transport.send([a_delivery(2)])
    monkeypatch.undo()
    [again] = await transport.send([a_delivery(2)])

    assert isinstance(outcome, Faulted)
    assert outcome.nature is Nature.TRANSIENT
    assert (outcome.fault.rule, outcome.fault.code) == ("file: ENOSPC", "ENOSPC")
    assert again == Succeeded()
    assert path.read_bytes() == b'{"order":42}\n' * 2


async def test_it_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    flush = os.fsync

    def seen(opened: int) -> None:
        flushed.append(opened)
        flush(opened)

    monkeypatch.setattr(os, "fsync", seen)

    await built(tmp_path / "loose.jsonl", fsync=False).send([a_delivery(1)])
    without = len(flushed)
    await built(tmp_path / "safe.jsonl").send([a_delivery(1), a_delivery(2)])

    assert without == 0
    assert len(flushed) == 2  # the folder that has got a new file, and the file once


async def test_a_folder_that_is_missing_is_an_outage(tmp_path: Path) -> None:
    app, folder = Redrive("memory://"), tmp_path / "later"
    retry = Retry(max_attempts=2, base="1s", jitter="none")
    app.destination("log", "*", transport=file(str(folder / "events.jsonl")), retry=retry)

    async with Kit(app) as kit:
        await app.publish("order.paid")
        first = await kit.drain()
        folder.mkdir()
        kit.clock.advance("1m")
        second = await kit.drain()

    assert (first.retried, second.delivered) == (1, 1)


async def test_a_write_that_hangs_blocks_no_one_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda one: (goes_on.wait(20), flush(one))[1])
    app = Redrive("memory://")
    app.destination("slow", "*", transport=file(str(tmp_path / "slow.jsonl")))

    @app.handler("*")
    async def quick(_: object) -> None:
        goes_on.set()

    async with app:
        await app.publish("order.paid")
        tally = await app.drain()

    assert tally.delivered == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"body": "all"}, "one of payload, event"),
        ({"batch": 0}, "batch is 0"),
        ({"keep": 2}, "never rotated"),
        ({"rotate_bytes": "1 MB"}, "rotate_bytes"),
        ({"fsync": 1}, "True or False"),
        ({"rotate": 1}, "rotate_bytes"),
    ],
)
def test_a_wrong_option_is_refused_with_advice(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        file("events.jsonl", **options)


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="path of a file"):
        file("")


def test_every_option_is_listed_in_the_guide() -> None:
    listed: Sequence[str] = list(table_of(ROOT / "docs" / "guides" / "files.md", "Options"))

    assert sorted(listed) == sorted(FileOptions.__annotations__)
