"""The journal: what is whole is given to the store once, whatever happens to file or disk."""

from __future__ import annotations

import errno
import fcntl
import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from redrive.errors import JournalError, StoreUnavailableError
from redrive.journal.draining import drain_file, drain_folder
from redrive.journal.folder import FileState, expire, files_of, to_drain
from redrive.journal.line import EventRecord, PublishedRecord, TriedRecord, read_lines
from redrive.journal.writer import JournalWriter
from redrive.model.delivery import Status
from redrive.model.destination import Destination
from redrive.store import Query, Rest, Tried
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock
from tests.conformance.world import an_event

_MONTH = timedelta(days=30)


class Desk:
    """A journal, and a store that knows one destination."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.folder = folder
        self.store = MemoryStore(self.clock)
        self.writer = self.another()

    def another(self, **options: object) -> JournalWriter:
        return JournalWriter(self.folder, clock=self.clock, host="web-1", **options)  # type: ignore[arg-type]

    async def register(self) -> None:
        await self.store.register([Destination(name="billing", patterns=("order.*",))])

    async def stored(self) -> int:
        page = await self.store.find(Query(status=Status.PENDING), limit=10_000)
        return len(page.deliveries)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "journal")
    await desk.register()
    return desk


def a_record() -> TriedRecord:
    return TriedRecord(tried=Tried(event=an_event({"n": 1}), rest=(Rest(destination="billing"),)))


async def test_what_is_written_is_drained_once_and_kept_apart(desk: Desk) -> None:
    desk.writer.append([a_record(), EventRecord(event=an_event({"n": 2}))])
    desk.writer.append([a_record()])
    desk.writer.let_go()

    done = await drain_folder(desk.folder, desk.store)
    again = await drain_folder(desk.folder, desk.store)

    assert (done.files, done.records, again.files) == (1, 3, 0)
    assert await desk.stored() == 3
    (file,) = files_of(desk.folder)
    assert (file.state, file.records, file.waiting) == (FileState.DRAINED, 3, 0)
    assert oct((desk.folder / file.name).stat().st_mode & 0o777) == "0o600"


async def test_what_is_being_written_is_left_to_its_writer(desk: Desk) -> None:
    desk.writer.append([a_record()])

    done = await drain_folder(desk.folder, desk.store)

    assert (done.busy, done.records) == (1, 0)
    assert files_of(desk.folder)[0].state is FileState.BEING_WRITTEN
    desk.writer.let_go()
    assert (await drain_folder(desk.folder, desk.store)).records == 1


async def test_a_file_that_is_drained_just_as_it_is_begun_gets_no_records(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def drain_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (path,) = to_drain(desk.folder)
        path.rename(path.with_suffix(".drained"))  # as a drain does with an empty file
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", drain_first)
    desk.writer.append([a_record()])
    desk.writer.let_go()

    assert (await drain_folder(desk.folder, desk.store)).records == 1


async def test_a_file_that_is_cut_anywhere_loses_at_most_its_last_record(desk: Desk) -> None:
    desk.writer.append([a_record(), a_record()])
    desk.writer.let_go()
    (path,) = to_drain(desk.folder)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    begin = len(whole) - len(lines[-1])

    for cut in range(begin, len(whole) + 1):
        store = MemoryStore(desk.clock)
        await store.register([Destination(name="billing", patterns=("order.*",))])
        path.write_bytes(whole[:cut])
        done = await drain_file(path, store)
        path.with_suffix(".drained").unlink()

        is_whole = cut >= len(whole) - 1  # but for the end of its line nothing is missing
        assert done.records == (2 if is_whole else 1)
        assert done.damaged == 0
        found = await store.find(Query(status=Status.PENDING))
        assert len(found.deliveries) == done.records


async def test_a_file_that_was_cut_as_it_began_holds_nothing(desk: Desk) -> None:
    desk.writer.append([a_record()])
    desk.writer.let_go()
    (path,) = to_drain(desk.folder)
    header = path.read_bytes().splitlines(keepends=True)[0]

    for cut in range(len(header)):
        path.write_bytes(header[:cut])
        assert (await drain_file(path, desk.store)).records == 0
        path.with_suffix(".drained").rename(path)


async def test_a_line_that_is_damaged_costs_no_other_and_stays_for_a_person(desk: Desk) -> None:
    desk.writer.append([a_record(), a_record(), a_record()])
    desk.writer.let_go()
    (path,) = to_drain(desk.folder)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"n":1', b'"n":7')
    path.write_bytes(b"".join(lines))

    done = await drain_folder(desk.folder, desk.store)

    assert (done.records, done.damaged) == (2, 1)
    assert await desk.stored() == 2
    (file,) = files_of(desk.folder)
    assert (file.state, file.damaged) == (FileState.DAMAGED, 1)
    assert "checksum" in file.problem
    desk.clock.advance("400d")
    assert expire(desk.folder, _MONTH, clock=desk.clock) == []


async def test_a_file_of_a_newer_version_is_left_as_it_is(desk: Desk) -> None:
    desk.writer.append([a_record()])
    desk.writer.let_go()
    (path,) = to_drain(desk.folder)
    newer = path.read_bytes().replace(b'"version":1', b'"version":2')
    path.write_bytes(newer)

    with pytest.raises(JournalError, match=r"newer Redrive .* reads up to 1"):
        await drain_file(path, desk.store)

    assert path.read_bytes() == newer
    assert files_of(desk.folder)[0].state is FileState.NEWER


async def test_a_drain_that_dies_is_begun_again_and_gives_nothing_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.writer.append([a_record() for _ in range(500)])
    desk.writer.let_go()
    (path,) = to_drain(desk.folder)
    asked = 0
    take_over = desk.store.take_over

    async def dying(batch: object) -> int:
        nonlocal asked
        asked += 1
        made = await take_over(batch)  # type: ignore[arg-type]
        if asked <= 2:
            raise StoreUnavailableError("applied, and the answer is lost")
        return made

    monkeypatch.setattr(desk.store, "take_over", dying)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await drain_file(path, desk.store)
    await drain_file(path, desk.store)

    assert await desk.stored() == 500


async def test_files_are_begun_anew_by_size_and_by_date(desk: Desk) -> None:
    writer = desk.another(size=1_000)
    for _ in range(10):
        writer.append([a_record()])
    by_size = len(to_drain(desk.folder))
    desk.clock.advance("1d")
    writer.append([a_record()])
    writer.let_go()

    assert by_size > 2
    assert len(to_drain(desk.folder)) == by_size + 1
    assert all(one.size < 1_500 for one in files_of(desk.folder))
    assert (await drain_folder(desk.folder, desk.store)).records == 11


async def test_drained_files_go_after_a_while_and_others_never(desk: Desk) -> None:
    desk.writer.append([a_record()])
    desk.writer.let_go()
    await drain_folder(desk.folder, desk.store)
    desk.writer.append([a_record()])
    desk.writer.let_go()
    for path in desk.folder.iterdir():
        stamp = desk.clock.now().timestamp()
        os.utime(path, (stamp, stamp))

    desk.clock.advance("29d")
    early = expire(desk.folder, _MONTH, clock=desk.clock)
    desk.clock.advance("2d")
    late = expire(desk.folder, _MONTH, clock=desk.clock)

    assert (early, len(late)) == ([], 1)
    assert [one.state for one in files_of(desk.folder)] == [FileState.TO_DRAIN]


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "Make room"), (errno.EROFS, "Let this process write")]
)
async def test_a_disk_that_takes_no_more_is_told_and_tears_no_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    desk.writer.append([a_record()])
    write = os.write
    is_full = True

    def half(descriptor: int, data: bytes) -> int:
        if is_full:
            write(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(JournalError, match=advice):
        desk.writer.append([a_record()])
    is_full = False
    desk.writer.append([a_record()])
    desk.writer.let_go()

    (path,) = to_drain(desk.folder)
    assert [one.damage for one in read_lines(path)] == ["", ""]
    assert (await drain_folder(desk.folder, desk.store)).records == 2


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    desk = Desk(tmp_path / "taken")

    with pytest.raises(JournalError, match="cannot be written"):
        desk.writer.append([a_record()])
    assert files_of(tmp_path / "nowhere") == []


async def test_what_was_published_keeps_its_promises_when_it_is_drained(desk: Desk) -> None:
    keyed = an_event({"n": 1}, idempotency_key="k")
    other = an_event({"n": 2}, idempotency_key="k")
    version = an_event({"n": 3}, key="order-1")
    astray = an_event({"n": 4}, to=("nobody",))
    desk.writer.append(
        [
            PublishedRecord(event=keyed),
            PublishedRecord(event=keyed),
            PublishedRecord(event=other),
            PublishedRecord(event=version, expected_version=7),
            PublishedRecord(event=astray),
        ]
    )
    desk.writer.let_go()

    done = await drain_folder(desk.folder, desk.store)

    assert (done.records, done.refused) == (5, 3)
    assert await desk.stored() == 1
    letters = (await desk.store.find(Query(status=Status.FAILED))).deliveries
    assert {one.event_id for one in letters} == {other.id, version.id, astray.id}
    assert {one.destination for one in letters} == {"billing", "nobody"}
    assert all(one.fault is not None and one.fault.group for one in letters)


def test_a_record_says_nothing_that_json_does_not() -> None:
    line = msgspec.json.encode(a_record())

    assert msgspec.json.decode(line)["type"] == "tried"
