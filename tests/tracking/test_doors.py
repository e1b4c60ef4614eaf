"""The journal behind every door: commands, the API, a page, and the doctor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.clock import SystemClock
from redrive.journal.folder import FileState, files_of, size_of, to_drain
from redrive.journal.line import EventRecord, PublishedRecord
from redrive.journal.writer import JournalWriter
from redrive.model.audit import AuditQuery
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome
from tests.cli.shell import Shell
from tests.conformance.world import an_event
from tests.web.client import Client
from tests.web.pages.browser import Browser


class Machine:
    """A store, and the journal of a machine with two records of a process that is gone."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'shop.db'}"
        self.folder = folder / "redrive-journal"
        self.app = Redrive(self.url, journal=self.folder)
        self.app.destination("billing", "order.*", transport=_Nowhere())

    async def declare(self) -> None:
        async with self.app:
            await self.app.operations.status()

    def write(self, *, lets_go: bool = True, store: str = "") -> JournalWriter:
        writer = JournalWriter(self.folder, clock=SystemClock(), host="web-1", store=store)
        writer.append(
            [
                PublishedRecord(event=an_event({"n": 1}, tenant="acme")),
                EventRecord(event=an_event({"card": "4711"}, key="order-7")),
            ]
        )
        if lets_go:
            writer.let_go()
        return writer

    def damage(self) -> str:
        """Change a letter within the first record, and return the file's name."""
        (path,) = to_drain(self.folder)
        lines = path.read_bytes().splitlines(keepends=True)
        lines[1] = lines[1].replace(b'"n":1', b'"n":2')
        path.write_bytes(b"".join(lines))
        return path.name

    def age(self) -> str:
        """Make the file one of a later version, and return its name."""
        (path,) = to_drain(self.folder)
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":9', 1))
        return path.name


class _Nowhere:
    batch = 1

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        raise AssertionError(deliveries)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    machine = Machine(tmp_path)
    monkeypatch.setenv("REDRIVE_STORE", machine.url)
    asyncio.run(machine.declare())
    return machine


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


def test_the_commands_tell_of_the_journal_and_drain_it_once(machine: Machine, shell: Shell) -> None:
    machine.write()
    (name,) = [path.name for path in to_drain(machine.folder)]

    listed = shell("journal", "list")
    shown = shell("journal", "show", name)
    first = shell("journal", "show", name, "--limit", "1", "--json").json
    rest = shell("journal", "show", name, "--after", str(first["next"]), "--json").json
    drained = shell("journal", "drain", "--why", "the shop is gone")
    again = shell("journal", "drain", "--json")

    assert "to drain" in listed.out
    assert "2 records wait" in listed.out
    assert "order-7" in shown.out
    assert "4711" not in shown.out
    assert [one["kind"] for one in (*first["records"], *rest["records"])] == [
        "published",
        "tracked",
    ]
    assert (drained.code, drained.out) == (0, "Gave 2 records to the store.\n")
    assert (again.json["records"], again.json["files"]) == (0, 0)
    assert shell("status", "--json").json["destinations"][0]["pending"] == 2
    [entry] = shell("audit", "--json").json["entries"][:1]
    assert (entry["action"], entry["why"], entry["count"]) == ("drain", "the shop is gone", 2)


def test_what_the_commands_cannot_do_they_say(machine: Machine, shell: Shell) -> None:
    assert "is empty" in shell("journal", "list").out
    machine.write(lets_go=False)

    unknown = shell("journal", "show", "nothing.jsonl")
    busy = shell("journal", "drain")

    assert (unknown.code, "no file of the journal" in unknown.err) == (2, True)
    assert "1 file is left to who writes them" in busy.out
    assert "being written" in shell("journal", "list").out


def test_verify_finds_every_line_that_is_damaged(machine: Machine, shell: Shell) -> None:
    machine.write()
    whole = shell("journal", "verify")
    name = machine.damage()

    found = shell("journal", "verify")
    damaged = shell("journal", "show", name, "--damaged", "--json").json
    drained = shell("journal", "drain")
    kept = shell("journal", "verify", "--json")

    assert (whole.code, "1 file is whole and 0 not; 2 records" in whole.out) == (0, True)
    said = " ".join(found.out.split())
    assert (found.code, "checksum does not fit (1 line)" in said) == (1, True)
    assert [bool(one["damage"]) for one in damaged["records"]] == [True]
    assert (drained.code, "Gave 1 record" in drained.out) == (1, True)
    assert (kept.code, kept.json["files"][0]["state"]) == (1, "damaged")


def test_verify_reads_what_is_drained_as_well(machine: Machine, shell: Shell) -> None:
    machine.write()
    assert "2 records" in shell("journal", "drain").out
    (path,) = machine.folder.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))

    assert shell("journal", "list", "--json").json["files"][0]["records"] == 2
    assert shell("journal", "verify").code == 1


def test_the_journal_is_told_while_the_store_is_down(
    machine: Machine, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write()
    monkeypatch.setenv("REDRIVE_STORE", "postgresql://nobody@127.0.0.1:1/nothing")

    listed, examined = shell("journal", "list"), shell("doctor")
    drained = shell("journal", "drain")

    assert (listed.code, "2 records wait" in listed.out) == (0, True)
    assert "2 records wait in the journal on" in " ".join(examined.out.split())
    assert (drained.code, "Traceback" in drained.err) == (3, False)
    assert files_of(machine.folder)[0].waiting == 2


async def test_a_file_that_cannot_be_drained_keeps_no_other_from_it(machine: Machine) -> None:
    machine.write()
    name = machine.age()
    machine.write()

    async with machine.app as app:
        done = await app.operations.drain_journal(by="ann")
        findings = await app.operations.examine()

    assert (done.records, [one.name for one in done.left]) == (2, [name])
    assert "newer Redrive" in done.left[0].why
    assert any("written by a newer Redrive" in one.what for one in findings)
    states = {one.name: one.state for one in files_of(machine.folder)}
    assert states[name] is FileState.NEWER


async def test_what_is_for_another_store_is_left_to_it(machine: Machine, tmp_path: Path) -> None:
    machine.write(store=str(tmp_path / "elsewhere.db"))

    async with machine.app as app:
        other = await app.operations.drain_journal(by="ann")
        findings = await app.operations.examine()
        moved = await app.operations.drain_journal(by="ann", any_store=True)

    assert (other.records, other.foreign, moved.records) == (0, 1, 2)
    assert any("wait for another store" in one.what for one in findings)


async def test_a_drained_file_goes_when_it_was_kept_long_enough(machine: Machine) -> None:
    machine.write()
    app = Redrive(machine.url, journal=machine.folder, keep_journal="0s")

    async with app:
        await app.operations.drain_journal(by="ann")

    assert list(machine.folder.iterdir()) == []


async def test_a_disk_that_takes_no_writes_is_drained_and_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write()

    def refuse(path: Path, target: Path) -> Path:
        raise OSError(30, "Read-only file system", str(path), None, str(target))

    async with machine.app as app:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            first = await app.operations.drain_journal(by="ann")
            second = await app.operations.drain_journal(by="ann")
        last = await app.operations.drain_journal(by="ann")
        figures = await app.operations.status()

    assert "Let this process write there" in first.left[0].why
    assert (len(second.left), last.records) == (1, 0)
    assert figures.destinations[0].pending == 2


async def test_a_server_tells_of_the_journal_of_its_own_machine(machine: Machine) -> None:
    machine.write()
    async with machine.app as app:
        client = Client(app.asgi(login=False))
        listed = await client.get("/api/v1/journal")
        [file] = listed.json["files"]
        page = await client.get(f"/api/v1/journal/{file['name']}")
        outside = await client.get("/api/v1/journal/..%2Fshop.db")
        drained = await client.post("/api/v1/journal/drain", {"why": "by hand"})
        entries = await app.operations.audit(AuditQuery(action="drain"))

    assert (listed.json["folder"], file["state"]) == (str(machine.folder), "to drain")
    assert len(page.json["records"]) == 2
    assert b"4711" not in page.body
    assert outside.status in {400, 404}
    assert drained.json["records"] == 2
    assert [one.why for one in entries] == ["by hand"]


async def test_the_page_shows_the_journal_and_drains_it(machine: Machine) -> None:
    machine.write()
    async with machine.app as app:
        browser = Browser(app.asgi(login=False))
        before = await browser.open("/journal")
        after = await browser.submit("/journal/drain", why="by hand")

    assert "to drain" in before.text
    assert "2 records were given to the store." in after.text
    assert "drained" in after.text


def test_a_look_at_the_folder_tells_its_size(machine: Machine) -> None:
    machine.write()
    sizes = size_of(machine.folder)

    assert sizes[FileState.TO_DRAIN].files == 1
    assert sizes[FileState.TO_DRAIN].bytes == next(iter(to_drain(machine.folder))).stat().st_size
    assert sizes[FileState.DRAINED].files == 0


async def test_a_file_that_may_not_be_read_is_told_of(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write()
    (path,) = to_drain(machine.folder)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("redrive.journal.folder.os.open", refuse)
    async with machine.app as app:
        done = await app.operations.drain_journal(by="ann")

    assert "Let this process read and write it" in done.left[0].why
    assert path.exists()


def test_a_foreign_file_is_no_newer_one_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / "notes.jsonl").write_text('{"note": 1}\n')

    (file,) = files_of(folder)

    assert file.state is FileState.DAMAGED
    assert "no journal of Redrive" in file.problem
