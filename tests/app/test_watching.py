"""Watching: hooks and observers hear what happens, and can do no harm."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from redrive import DeadLettered, Event, NewEvent, Operations, Redrive, Retry, Terminal
from redrive.model.settlement import FailureReason
from redrive.observer import Fact
from redrive.testing import Kit
from tests.app.recorder import Recorder


class Grumbler:
    def notice(self, fact: Fact) -> None:
        raise LookupError("this observer is broken")


def shop() -> Redrive:
    app = Redrive("memory://")

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=1))
    async def bill(event: Event[Any]) -> None:
        raise Terminal("no such customer")

    return app


async def test_a_hook_hears_of_each_dead_letter(store: str) -> None:
    app = shop()
    told: list[DeadLettered] = []

    @app.on_failed
    def alert(letter: DeadLettered) -> None:
        told.append(letter)

    async with Kit(app, store=store) as kit:
        receipt = await app.publish("order.paid", tenant="acme", key="order-7", source="web")
        await kit.drain()

        [letter] = told
        assert (letter.key, letter.source, letter.cycles) == ("order-7", "web", 0)
        [dead] = kit.dead_letters()
        assert (letter.delivery_id, letter.event_id) == (dead.id, receipt.event_id)
        assert (letter.event_type, letter.destination) == ("order.paid", "billing")
        assert (letter.tenant, letter.reason, letter.attempts) == ("acme", "terminal", 1)
        assert letter.fault.message == "no such customer"


async def test_a_hook_hears_how_often_a_letter_was_replayed(store: str) -> None:
    app = shop()
    told: list[DeadLettered] = []
    app.on_failed(told.append)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", key="order-7", source="web")
        await kit.drain()
        [dead] = kit.dead_letters()
        await kit.operations.replay([dead.id], by="ada")
        await kit.drain()
        await kit.operations.replay([dead.id], by="ada")
        await kit.operations.cancel([dead.id], by="ada")

        assert [(one.reason, one.cycles) for one in told] == [
            ("terminal", 0),
            ("terminal", 1),
            ("cancelled", 2),
        ]
        assert {(one.key, one.source) for one in told} == {("order-7", "web")}


async def test_an_async_hook_hears_of_it_too(store: str) -> None:
    app = shop()
    told: list[str] = []

    @app.on_failed
    async def alert(letter: DeadLettered) -> None:
        await app.publish("alert.raised", {"destination": letter.destination})
        told.append(letter.reason)

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()

        assert told == ["terminal"]
        kit.assert_published("alert.raised", payload={"destination": "billing"})


@pytest.mark.parametrize("kind", [LookupError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_hook_that_raises_is_logged_and_harms_nothing(
    store: str, caplog: pytest.LogCaptureFixture, kind: type[BaseException], *, is_async: bool
) -> None:
    app = shop()
    told: list[str] = []

    def fail(letter: DeadLettered) -> None:
        raise kind("the pager is out of order")

    async def fail_later(letter: DeadLettered) -> None:
        fail(letter)

    app.on_failed(fail_later if is_async else fail)
    app.on_failed(lambda letter: told.append(letter.reason))

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        tally = await kit.drain()

        assert tally.failed == 1
        assert told == ["terminal"]
        assert len(kit.dead_letters()) == 1
        [record] = caplog.records
        assert (record.name, record.levelno) == ("redrive", logging.ERROR)
        assert "the pager is out of order" in caplog.text


async def test_a_hook_that_never_ends_is_waited_for_once_and_named(
    store: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.observers.hooks._PATIENCE", timedelta(0))
    app = shop()

    @app.on_failed
    async def page_somebody(letter: DeadLettered) -> None:
        await asyncio.Event().wait()

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")

        tally = await kit.drain()

        assert tally.failed == 1

    [told] = [one.getMessage() for one in caplog.records]
    assert told.startswith("The on_failed hook ")
    assert "page_somebody has not ended within 0s" in told


async def test_a_hook_hears_of_what_operators_fail(store: str) -> None:
    app = shop()
    told: list[DeadLettered] = []
    app.on_failed(told.append)

    async with Kit(app, store=store) as kit:
        for _ in range(3):
            await app.publish("order.paid", due="1h")
        await kit.operations.cancel([1], by="ada", why="a mistake")
        await kit.operations.fail_pending("billing", by="ada", why="it is gone")
        letters = {one.id: one for one in kit.dead_letters()}

    assert [one.delivery_id for one in told] == [1, 2, 3]
    assert [one.fault.message for one in told] == ["a mistake", "it is gone", "it is gone"]
    assert {one.reason for one in told} == {FailureReason.CANCELLED}
    assert all(letters[one.delivery_id].fault == one.fault for one in told)


async def test_async_hooks_run_a_hundred_at_a_time_and_each_is_called(store: str) -> None:
    app = shop()
    is_full, may_end, told, running, most = asyncio.Event(), asyncio.Event(), [], 0, 0

    @app.on_failed
    async def page_somebody(letter: DeadLettered) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 100:
            is_full.set()
        await may_end.wait()
        running -= 1
        told.append(letter.delivery_id)

    async with Kit(app, store=store) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(250)])
        draining = asyncio.ensure_future(kit.drain())
        await is_full.wait()
        may_end.set()
        await draining

    assert most == 100
    assert sorted(told) == list(range(1, 251))


async def test_calls_that_find_no_room_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.observers.hooks._MOST_AT_ONCE", 2)
    monkeypatch.setattr("redrive.observers.hooks._MOST_WAITING", 4)
    app = shop()
    may_end, told, begun = asyncio.Event(), 0, 0

    @app.on_failed
    def count(letter: DeadLettered) -> None:
        nonlocal begun
        begun += 1
        if begun == 20:
            asyncio.get_running_loop().call_soon(may_end.set)

    @app.on_failed
    async def page_somebody(letter: DeadLettered) -> None:
        nonlocal told
        await may_end.wait()
        told += 1

    async with Kit(app) as kit:
        await app.publish_many([NewEvent(type="order.paid") for _ in range(20)])
        await kit.drain()

    first, last = [one.getMessage() for one in caplog.records]
    assert first.startswith("The on_failed hook ")
    assert "2 run, 4 wait, and those that come now are left out" in first
    assert last == f"Calls of hooks that were left out: {20 - told}."


async def test_closing_the_sync_door_does_not_wait_for_hooks_elsewhere(store: str) -> None:
    app = shop()
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.on_failed
    async def alert(letter: DeadLettered) -> None:
        started.set()
        await may_end.wait()

    async with Kit(app, store=store), app.worker():
        await app.publish("order.paid")
        await started.wait()

        await asyncio.to_thread(app.sync.publish, "mail.sent")
        await asyncio.to_thread(app.sync.close)

        may_end.set()


async def test_an_observer_hears_every_step(store: str) -> None:
    app, recorder = shop(), Recorder()
    app.observe(recorder)
    async with Kit(app, store=store) as kit:
        await app.publish("order.paid")
        await kit.drain()
        await kit.operations.replay([kit.dead_letters()[0].id], by="ada")

    assert recorder.names == [
        "Published",
        "WorkerStarted",
        "Claimed",
        "Settlements",
        "DeadLettered",
        "WorkerStopping",
        "WorkerStopped",
        "Operated",
    ]


async def test_an_observer_that_raises_harms_nothing(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, recorder = shop(), Recorder()
    app.observe(Grumbler())
    app.observe(recorder)
    async with Kit(app, store=store) as kit:
        receipt = await app.publish("order.paid")
        tally = await kit.drain()

        assert receipt.is_routed
        assert tally.failed == 1
        assert "DeadLettered" in recorder.names
        assert "The observer Grumbler failed at Published." in caplog.text


async def test_looking_is_no_fact() -> None:
    app, recorder = shop(), Recorder()
    app.observe(recorder)
    async with Kit(app) as kit:
        await kit.operations.status()
        await kit.operations.dead_letters()

    assert recorder.facts == []
    assert isinstance(kit.operations, Operations)
