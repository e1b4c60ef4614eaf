"""What is kept, for how long, and where it goes: settings, limits, exports."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import (
    AutoReplay,
    Breaker,
    ConfigurationError,
    Event,
    Keep,
    NewEvent,
    PayloadError,
    Query,
    Rate,
    Redrive,
    Retry,
    UsageError,
)
from redrive.archive import is_header, read_line, write_line
from redrive.model.delivery import Status
from redrive.model.letter import Letter
from redrive.observer import ExportFailed, HistoryPruned, LettersExported, LettersNearLimit
from redrive.operations import Operations, PrunePlan
from redrive.store import Pruned
from redrive.testing import Kit
from tests.app.recorder import Recorder

ONCE = Retry(max_attempts=1)


def shop(**options: Any) -> Redrive:  # noqa: ANN401 - any settings
    """An app that fails when the payload says so."""
    app = Redrive("memory://", **options)

    @app.handler("order.*", name="billing", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        if event.payload == "fail":
            raise ConnectionError("refused")

    return app


def limiting(folder: Path, keep: Keep) -> tuple[Redrive, Recorder]:
    """An app whose only destination always fails, and keeps few dead letters."""
    app, recorder = Redrive("memory://", export_folder=folder), Recorder()
    app.observe(recorder)

    @app.handler("order.*", name="billing", retry=ONCE, dead_letters=keep)
    async def bill(event: Event[Any]) -> None:
        raise ConnectionError("refused")

    return app, recorder


async def letters(app: Redrive, query: Query | None = None) -> list[Letter]:
    return [one async for one in app.operations.export(query)]


def exported(folder: Path) -> list[Letter]:
    return [
        read_line(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if not is_header(line)
    ]


async def test_keep_delivered_is_how_long_what_arrived_is_kept(store: str) -> None:
    app = shop(keep_delivered="2h")
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()
        kit.clock.advance("1h59m")
        await kit.drain()
        before = (await kit.operations.status()).destinations[0]
        kit.clock.advance("1m")
        await kit.drain()
        after = (await kit.operations.status()).destinations[0]

    assert (before.delivered, before.pruned) == (1, 0)
    assert (after.delivered, after.pruned) == (0, 1)


async def test_keep_events_is_how_long_the_log_is_kept(store: str) -> None:
    app = shop(keep_events="3d")
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()
        kit.clock.advance("2d23h")
        await kit.drain()
        before = (await kit.operations.status()).events
        kit.clock.advance("1h")
        await kit.drain()
        figures = await kit.operations.status()

    assert before == 1
    assert (figures.events, figures.pruned_events) == (0, 1)


async def test_keep_events_of_is_the_same_for_some_types(store: str) -> None:
    spans = {"order.placed": "forever", "order.*": "2d"}
    app = shop(keep_events="3d", keep_events_of=spans)
    async with Kit(app, store=store) as kit:
        for kind in ("order.placed", "order.paid", "mail.sent"):
            await app.publish(kind)
        await kit.drain()
        left = []
        for days in ("2d", "1d", "1000d"):
            kit.clock.advance(days)
            counted = (await kit.operations.prunable()).pruned.events
            await kit.drain()
            events = [one.event.type for one in await app.log.read()]
            left.append((counted, events))

    assert left == [
        (1, ["order.placed", "mail.sent"]),
        (1, ["order.placed"]),
        (0, ["order.placed"]),
    ]


async def test_keep_audit_is_how_long_it_is_known_who_did_what(store: str) -> None:
    app = shop(keep_audit="50d")
    async with Kit(app, store=store) as kit:
        await kit.operations.pause("billing", by="ada")
        kit.clock.advance("49d")
        await kit.drain()
        before = await kit.operations.audit()
        kit.clock.advance("1d")
        await kit.drain()
        after = await kit.operations.audit()

    assert [one.by for one in before] == ["ada"]
    assert list(after) == []


async def test_keep_idempotency_is_how_long_a_key_is_remembered(store: str) -> None:
    app = shop(keep_idempotency="40d")
    async with Kit(app, store=store) as kit:
        first = await app.publish("order.paid", 1, idempotency_key="k")
        await kit.drain()
        kit.clock.advance("39d")
        await kit.drain()
        still = await app.publish("order.paid", 1, idempotency_key="k")
        kit.clock.advance("1d")
        await kit.drain()
        fresh = await app.publish("order.paid", 2, idempotency_key="k")

    assert (still.event_id, still.is_duplicate) == (first.event_id, True)
    assert (fresh.event_id != first.event_id, fresh.is_duplicate) == (True, False)


async def test_an_unresolved_dead_letter_keeps_its_event_and_key_however_old(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        receipt = await app.publish("order.paid", "fail", idempotency_key="k")
        await kit.drain()
        kit.clock.advance("1000d")
        await kit.drain()

        [letter] = kit.dead_letters()
        again = await app.publish("order.paid", "fail", idempotency_key="k")
        story = await kit.operations.show(letter.id)

    assert (again.event_id, again.is_duplicate) == (receipt.event_id, True)
    assert story.payload == "fail"


async def test_a_worker_prunes_batch_after_batch_and_tells(sqlite: str) -> None:
    app, recorder = shop(), Recorder()
    app.observe(recorder)
    async with Kit(app, store=sqlite) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(1_200)])
        await kit.drain()
        kit.clock.advance("1d")
        async with app.worker():
            while (await kit.operations.status()).pruned < 1_200:
                kit.clock.advance("1s")
                await kit.clock.sleep(0)

    told = [one.pruned for one in recorder.of(HistoryPruned)]
    assert sum(one.delivered for one in told) == 1_200
    assert max(one.delivered for one in told) == 200


async def test_pruning_by_hand_does_the_same(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        for payload in (1, 2, "fail"):
            await app.publish("order.paid", payload, idempotency_key=str(payload))
        await kit.drain()
        await kit.operations.resolve([kit.dead_letters()[0].id], by="ada", why="by hand")
        kit.clock.advance("31d")
        seen: list[int] = []

        plan = await kit.operations.prunable()
        done = await kit.operations.prune(progress=seen.append)

        assert plan == done == PrunePlan(pruned=Pruned(delivered=2, resolved=1, events=3, keys=3))
        assert (await kit.operations.prunable()).is_empty
        assert sum(seen) == 5


async def test_a_prune_by_hand_is_in_the_audit_log(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()
        kit.clock.advance("31d")
        await kit.operations.prune(by="ada", why="the disk is full")
        await kit.operations.prune(by="ada")

        [entry] = await kit.operations.audit()

    assert (entry.action, entry.by, entry.why) == ("prune", "ada", "the disk is full")
    assert (entry.count, entry.deliveries, entry.detail) == (2, (), "delivered 1, events 1")


async def test_dead_letters_over_the_count_are_exported_before_they_go(
    store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "exports" / "new"
    app, recorder = limiting(folder, Keep(count=2))
    async with Kit(app, store=store) as kit:
        for number in range(5):
            await app.publish("order.paid", {"n": number}, tenant="acme")
            await kit.drain()
            kit.clock.advance("1m")
        await kit.drain()

        left = [one.event.payload for one in await letters(app)]
        audit = await kit.operations.audit()
        figures = await kit.operations.status()

    gone = exported(folder)
    assert [bytes(one) for one in left] == [b'{"n":3}', b'{"n":4}']
    assert [bytes(one.event.payload) for one in gone] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert gone[0].delivery.fault is not None
    assert gone[0].delivery.fault.message == "refused"
    assert (figures.exported, figures.destinations[0].failed) == (3, 2)
    assert {(one.action, one.by) for one in audit} == {("export", "redrive")}
    assert sum(one.count for one in audit) == 3
    assert all(one.detail.endswith(".jsonl") for one in audit)
    assert sum(one.count for one in recorder.of(LettersExported)) == 3


async def test_dead_letters_over_the_age_are_exported_before_they_go(
    store: str, tmp_path: Path
) -> None:
    app, _ = limiting(tmp_path / "exports", Keep(age="90d"))
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", 1)
        await kit.drain()
        kit.clock.advance("89d")
        await app.publish("order.paid", 2)
        await kit.drain()
        before = len(kit.dead_letters())
        kit.clock.advance("1d")
        await kit.drain()

        assert (before, len(kit.dead_letters())) == (2, 1)

    assert [bytes(one.event.payload) for one in exported(tmp_path / "exports")] == [b"1"]


async def test_a_limit_that_is_near_is_told_once(tmp_path: Path) -> None:
    app, recorder = limiting(tmp_path / "exports", Keep(count=5))
    async with Kit(app) as kit:
        async with app.worker():
            for _ in range(4):
                await app.publish("order.paid")
            await rest(kit, 60)
        findings = [one.what for one in await kit.operations.examine()]

    [near] = recorder.of(LettersNearLimit)
    assert (near.destination, near.limit) == ("billing", "4 of 5 dead letters")
    assert any(
        "billing keeps its dead letters up to a limit, and is near it" in x for x in findings
    )


async def test_nothing_goes_while_the_export_cannot_be_written(tmp_path: Path) -> None:
    app, recorder = limiting(tmp_path / "exports", Keep(count=1))
    async with Kit(app) as kit:
        async with app.worker():
            await rest(kit, 1)
            (tmp_path / "exports").rmdir()
            (tmp_path / "exports").write_text("in the way")
            await app.publish_many([NewEvent(type="order.paid") for _ in range(3)])
            await rest(kit, 60)
        with pytest.raises(UsageError, match="dead letters of billing cannot be exported"):
            await kit.operations.prune()

        assert len(kit.dead_letters()) == 3
        assert (await kit.operations.status()).exported == 0
    [failed] = recorder.of(ExportFailed)
    assert "cannot be written" in failed.error


async def test_nothing_goes_until_the_export_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was only written may be gone after a power cut; a disk that fails says so at a flush."""
    flush, is_broken = os.fsync, True

    def fsync(file: int) -> None:
        if is_broken and stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    app, _ = limiting(tmp_path / "exports", Keep(count=1))
    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(3)])
        await kit.drain()
        with pytest.raises(UsageError, match="dead letters of billing cannot be exported"):
            await kit.operations.prune()
        kept = len(kit.dead_letters())
        is_broken = False
        await kit.operations.prune()
        left = len(kit.dead_letters())

    assert (kept, left) == (3, 1)


async def test_a_worker_without_a_folder_leaves_the_letters_of_others_alone() -> None:
    app, other, recorder = shop(), Redrive("memory://", export_folder="x"), Recorder()
    other.handler("order.*", name="limited", dead_letters=Keep(count=1), retry=ONCE)(print)
    app.observe(recorder)
    async with Kit(app) as kit:
        kit.connect(other)
        await other.open()
        await app.publish_many([NewEvent(type="order.paid") for _ in range(3)])
        await kit.operations.fail_pending("limited", by="ada", why="test")
        async with app.worker():
            await rest(kit, 60)
        left = (await kit.operations.status()).letters.count
        await other.close()

    assert left == 3
    [failed] = recorder.of(ExportFailed)
    assert (failed.destination, "no export_folder is set" in failed.error) == ("limited", True)


async def rest(kit: Kit, seconds: int) -> None:
    """Let time pass for whoever works."""
    for _ in range(seconds):
        kit.clock.advance("1s")
        for _ in range(20):
            await kit.clock.sleep(0)


def test_a_limit_without_a_folder_is_refused_at_once() -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="say where with the setting export_folder"):
        app.handler("order.*", name="billing", dead_letters=Keep(count=5))(print)


async def test_a_folder_that_cannot_be_made_is_refused_when_a_worker_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    app, _ = limiting(tmp_path / "file" / "exports", Keep(count=5))
    async with Kit(app):
        with pytest.raises(ConfigurationError, match=r"export folder .* cannot be made"):
            await app.make_worker()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "limits nothing"),
        ({"age": "0s"}, "leaves no time"),
        ({"age": "soon"}, "age is 'soon', which is not a duration"),
        ({"age": "99999999d"}, "age is '99999999d', which is too long; it is at most 36500d"),
        ({"count": 0}, "how many dead letters to keep, from 1"),
        ({"count": True}, "how many dead letters to keep, from 1"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Keep(**options)


@pytest.mark.parametrize("name", ["keep_delivered", "keep_events", "keep_idempotency", "lease"])
def test_a_setting_too_long_to_count_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} is '1000000d', which is too long"):
        shop(**{name: "1000000d"})


async def test_the_longest_durations_work(store: str, tmp_path: Path) -> None:
    longest = "36500d"
    app = shop(
        keep_delivered=longest,
        keep_events=longest,
        keep_idempotency=longest,
        export_folder=tmp_path,
    )

    @app.handler(
        "order.*",
        name="limited",
        retry=ONCE,
        dead_letters=Keep(age=longest),
        breaker=Breaker(failures=1, open_for=longest, window=longest, ramp=longest),
        rate=Rate(per_second=1 / 31_536_000),
        auto_replay=AutoReplay(cron="* * * * *", max_age=longest),
    )
    async def fail(event: Event[Any]) -> None:
        raise ConnectionError("refused")

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")
        tally = await kit.run_for("1h")
        pruned = await kit.operations.prune()

    assert (tally.delivered, tally.failed) == (2, 1)
    assert pruned == PrunePlan()


def test_a_rate_of_less_than_one_in_a_year_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="less than one in a year"):
        Rate(per_second=1e-30)


def test_a_limit_of_another_kind_is_refused() -> None:
    app = Redrive("memory://", export_folder="exports")

    with pytest.raises(ConfigurationError, match="dead_letters is 5; pass a Keep"):
        app.handler("order.*", dead_letters=5)(print)  # type: ignore[call-overload]


@asynccontextmanager
async def two_shops(one: str, other: str) -> AsyncIterator[tuple[Redrive, Kit, Redrive]]:
    first, second = shop(), shop()
    async with Kit(first, store=one) as kit, Kit(second, store=other):
        yield first, kit, second


@pytest.mark.parametrize(
    ("source", "target"), [("memory", "sqlite"), ("sqlite", "memory"), ("sqlite", "sqlite")]
)
async def test_letters_go_from_store_to_store_and_stay_equal(
    source: str, target: str, tmp_path: Path
) -> None:
    urls = [
        "memory://" if one == "memory" else f"sqlite:///{tmp_path}/{number}.db"
        for number, one in enumerate((source, target))
    ]
    async with two_shops(*urls) as (first, kit, second):
        await first.publish("nobody.cares")  # both count their ids from the same number
        for number in range(20):
            await first.publish(
                "order.paid", "fail", key=f"k{number}", tenant="acme", idempotency_key=str(number)
            )
            await kit.drain()
            kit.clock.advance("1s")
        await first.operations.replay([1, 2], by="ada")
        await kit.drain()
        before = await letters(first)
        lines = [write_line(one) for one in before]

        read = [read_line(line) for line in lines]
        restored = await second.operations.restore(read, by="ada", why="new machine")
        again = await second.operations.restore(read, by="ada")
        after = await letters(second)
        duplicate = await second.publish(
            "order.paid", "fail", key="k3", tenant="acme", idempotency_key="3"
        )

    assert (len(restored.deliveries), restored.known) == (20, 0)
    assert (again.deliveries, again.known) == ((), 20)
    assert sorted(map(but_for_id, after), key=by_event) == sorted(
        map(but_for_id, before), key=by_event
    )
    assert duplicate.is_duplicate


def but_for_id(letter: Letter) -> Letter:
    delivery = msgspec.structs.replace(letter.delivery, id=0)
    return msgspec.structs.replace(letter, delivery=delivery)


def by_event(letter: Letter) -> str:
    return letter.event.id


async def test_a_line_holds_everything_and_lets_new_fields_join() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", "fail", tenant="acme", headers={"traceparent": "00-1"})
        await kit.drain()
        [letter] = await letters(app)

    told = json.loads(write_line(letter))
    assert told["version"] == 1
    assert (told["event"]["payload"], told["event"]["tenant"]) == ("fail", "acme")
    assert told["delivery"]["reason"] == "exhausted"
    assert told["delivery"]["log"][0]["fault"]["message"] == "refused"
    told["edited"] = {"payload": "mended"}
    told["delivery"]["colour"] = "red"
    assert read_line(json.dumps(told).encode()) == letter


@pytest.mark.parametrize("payload", [{"total": 9}, None, "fixed", [1, 2]])
async def test_an_edited_letter_goes_to_a_file_and_back(payload: object, tmp_path: Path) -> None:
    async with two_shops(f"sqlite:///{tmp_path}/1.db", "memory://") as (first, kit, second):
        await first.publish("order.paid", "fail")
        await kit.drain()
        await first.operations.edit(1, payload, by="ada", why="it lacked a total", replay=False)
        [before] = await letters(first)

        read = read_line(write_line(before))
        await second.operations.restore([read], by="ada")
        [after] = await letters(second)

    assert read == before
    assert but_for_id(after) == but_for_id(before)
    assert bytes(after.event.payload) == b'"fail"'
    assert msgspec.json.decode(after.delivery.payload or b"") == payload
    assert [one.by for one in after.delivery.edits] == ["ada"]


async def test_an_edited_payload_that_no_claim_could_read_is_not_restored(tmp_path: Path) -> None:
    async with two_shops("memory://", f"sqlite:///{tmp_path}/1.db") as (first, kit, second):
        await first.publish("order.paid", "fail")
        await kit.drain()
        await first.operations.edit(1, "fixed", by="ada", why="typo", replay=False)
        [letter] = await letters(first)
        deep = msgspec.Raw(b"[" * 2000 + b"]" * 2000)
        delivery = msgspec.structs.replace(letter.delivery, payload=deep)

        with pytest.raises(PayloadError, match="more than 200 levels deep"):
            await second.operations.restore(
                [msgspec.structs.replace(letter, delivery=delivery)], by="ada"
            )
        assert await letters(second) == []


async def test_a_payload_with_line_breaks_is_one_line() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", msgspec.Raw(b'"fail"'))
        await kit.drain()
        [letter] = await letters(app)
    event = msgspec.structs.replace(letter.event, payload=msgspec.Raw(b'{\n  "n": 1.0\r\n}'))

    line = write_line(msgspec.structs.replace(letter, event=event))

    assert line.count(b"\n") == 1
    assert b'"n": 1.0' in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "import it with a newer one"),
        ({"event": {"type": "not a type"}}, "event"),
        ({"delivery": {"status": "pending"}}, "no dead letter"),
        ({"delivery": {"fault": None}}, "no dead letter"),
        ({"delivery": {"event_id": "other"}}, "the letter holds event"),
        ({"delivery": {"destination": "no such/name"}}, "destination name"),
        ({"delivery": {"attempts": -1}}, "counted from 0"),
        ({"delivery": {"auto_replays": -1}}, "counted from 0"),
        ({"delivery": {"payload": {"total": 9}}}, "belong together"),
        ({"delivery": 3}, "no dead letter"),
        ({"delivery": {"settled_at": "2026-01-01T00:00:00"}}, "without a time zone"),
        ({"delivery": {"priority": 1000}}, "from -100 to 100"),
        ({"delivery": {"reason": "bored"}}, "no dead letter"),
        ({"event": {"id": " "}, "delivery": {"event_id": " "}}, "no id"),
    ],
)
async def test_a_bad_line_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", "fail")
        await kit.drain()
        [letter] = await letters(app)
    told = json.loads(write_line(letter))
    for name, value in change.items():
        told[name] = {**told[name], **value} if isinstance(value, dict) else value

    with pytest.raises(UsageError, match=message):
        read_line(json.dumps(told).encode())


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_what_is_no_line_of_ours_is_refused(line: bytes) -> None:
    with pytest.raises(UsageError):
        read_line(line)


async def test_letters_of_a_key_keep_their_order_in_another_store(store: str) -> None:
    exported: list[Letter] = []
    seen: list[int] = []
    for given in (None, exported):
        app = Redrive("memory://")

        @app.handler("order.*", name="ledger", order="park")
        async def note(event: Event[int]) -> None:
            seen.append(event.payload)

        async with Kit(app, store=store if given is None else "memory://") as kit:
            if given is None:
                for number in range(4):
                    await app.publish("order.paid", number, key="k", due="1h")
                for number in (3, 1, 2, 4):
                    await kit.operations.cancel([number], by="ann", why="moving house")
                    kit.clock.advance("1s")
                exported += await letters(app)
                continue
            await kit.operations.restore(given[::-1], by="ann", why="moved")
            await kit.operations.replay([4, 3, 2, 1], by="ann", why="moved")
            await kit.run_for("2h")

        assert [bytes(one.event.payload) for one in exported] == [b"0", b"1", b"2", b"3"]
        assert seen == [0, 1, 2, 3]


async def test_an_archive_holds_letters_in_publish_order(store: str, tmp_path: Path) -> None:
    app, _ = limiting(tmp_path, Keep(age="1d"))
    async with Kit(app, store=store) as kit:
        for number in range(3):
            await app.publish("order.paid", number, due="30d")
        for number in (2, 3, 1):
            await kit.operations.cancel([number], by="ann", why="no more")
            kit.clock.advance("1s")
        kit.clock.advance("2d")
        await kit.operations.prune()

    assert [one.delivery.id for one in exported(tmp_path)] == [1, 2, 3]


async def test_pages_of_letters_come_through_the_sync_door(sqlite: str) -> None:
    app = shop()
    async with Kit(app, store=sqlite) as kit:
        await app.publish("order.paid", "fail")
        await kit.drain()
        page = await asyncio.to_thread(app.sync.operate, Operations.export_page)
        await asyncio.to_thread(app.sync.close)

    assert len(page.letters) == 1
    assert page.letters[0].delivery.status is Status.FAILED
