"""What a handler can ask about the delivery it works on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive import Current, Event, Redrive, Retry, UsageError
from redrive.testing import Kit


class Asked:
    """What handlers were told, one after the other."""

    def __init__(self) -> None:
        self.told: list[Current] = []

    def ask(self) -> None:
        self.told.append(redrive.current())


def handlers(asked: Asked) -> dict[str, Callable[..., Any]]:
    async def plain_async(event: Event[object]) -> None:
        await asyncio.create_task(asyncio.to_thread(asked.ask))

    def in_thread(event: Event[object]) -> None:
        asked.ask()

    return {"async": plain_async, "thread": in_thread}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_is_told_its_delivery(kind: str) -> None:
    app, asked = Redrive("memory://"), Asked()
    app.handler("order.*", name="billing", retry=Retry(max_attempts=4))(handlers(asked)[kind])
    async with Kit(app) as kit:
        receipt = await app.publish("order.paid", {"n": 1}, tenant="acme", deadline="1h")
        await kit.drain()

        [told] = asked.told
        assert (told.delivery_id, told.event.id) == (1, receipt.event_id)
        assert told.event.payload == {"n": 1}
        assert (told.destination, told.tenant) == ("billing", "acme")
        assert (told.attempt, told.max_attempts) == (1, 4)
        assert (told.cycle, told.is_replay) == (1, False)
        assert told.deadline == kit.clock.now() + timedelta(hours=1)


async def test_attempts_count_anew_in_a_replay_and_a_passed_deadline_is_gone(store: str) -> None:
    app, told = Redrive("memory://"), list[tuple[int, int, bool]]()

    @app.handler("order.*", retry=Retry(max_attempts=2, base="1m", jitter="none"))
    async def billing(event: Event[object]) -> None:
        now = redrive.current()
        told.append((now.attempt, now.cycle, now.deadline is not None))
        raise ValueError("no")

    async with Kit(app, store=store) as kit:
        await app.publish("order.paid", deadline="1h")
        await kit.drain(until="30m")
        kit.clock.advance("2h")
        await kit.operations.replay([1], by="ada")
        await kit.drain(until="30m")

    assert told == [(1, 1, True), (2, 1, True), (1, 2, False), (2, 2, False)]


async def test_a_handler_of_batches_asks_for_one_event() -> None:
    app, told = Redrive("memory://"), dict[object, Current]()

    @app.handler("order.*", batch=3)
    def billing(events: list[Event[int]]) -> None:
        with pytest.raises(UsageError, match=r"redrive\.current\(event\)"):
            redrive.current()
        told.update((one.payload, redrive.current(one)) for one in events)

    async with Kit(app) as kit:
        for payload in (1, "no number", 3):
            await app.publish("order.paid", payload)
        await kit.drain()

    assert {number: one.delivery_id for number, one in told.items()} == {1: 1, 3: 3}
    assert [one.event.payload for one in told.values()] == [1, 3]


async def test_the_event_of_somebody_else_is_none_of_the_handlers() -> None:
    app, events = Redrive("memory://"), list[Event[object]]()

    @app.handler("order.*")
    async def billing(event: Event[object]) -> None:
        events.append(event)
        if len(events) > 1:
            with pytest.raises(UsageError, match="was not given the event"):
                redrive.current(events[0])

    async with Kit(app) as kit:
        await app.publish("order.paid")
        await app.publish("order.paid")
        assert (await kit.drain()).delivered == 2


async def test_outside_a_handler_there_is_nothing_to_tell() -> None:
    app = Redrive("memory://")
    app.handler("order.*")(print)
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()

        with pytest.raises(UsageError, match="no handler runs here"):
            redrive.current()
