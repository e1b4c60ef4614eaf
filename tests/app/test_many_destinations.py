"""Many destinations: each gets its events, in whatever state the others are."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from redrive import Event, NewEvent, Redrive, Retry
from redrive.testing import Kit
from tests.waiting import eventually

MANY = 40
LONGEST_SECONDS = 60


class Mall:
    """An app with a destination for each shop, and an account of what they received."""

    def __init__(self, store: str, **settings: Any) -> None:  # noqa: ANN401 - those of an app
        self.app = Redrive(store, **settings)
        self.received: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        for number in range(MANY):
            declare: Any = self.app.handler
            retry = Retry(max_attempts=3, base="10s", jitter="none")
            declare(f"shop{number}.*", name=f"shop{number}", retry=retry)(self.receive)

    async def receive(self, event: Event[Any]) -> None:
        shop = event.type.partition(".")[0]
        if self.failures[shop]:
            self.failures[shop] -= 1
            raise ConnectionError("closed for lunch")
        self.received[shop] += 1

    async def publish(self, *numbers: int, count: int = 1, **options: Any) -> None:  # noqa: ANN401
        await self.app.publish_many(
            [
                NewEvent(type=f"shop{number}.visited", payload=visit, **options)
                for visit in range(count)
                for number in numbers
            ]
        )


async def test_a_drain_reaches_every_destination(store: str) -> None:
    mall = Mall("memory://", concurrency=7)
    async with Kit(mall.app, store=store) as kit:
        await mall.publish(*range(MANY), count=3)

        tally = await kit.drain()

        assert tally.delivered == 3 * MANY
        assert mall.received == Counter({f"shop{number}": 3 for number in range(MANY)})


async def test_what_comes_due_later_is_found(store: str) -> None:
    mall = Mall("memory://")
    async with Kit(mall.app, store=store) as kit:
        mall.failures = Counter({"shop3": 2, "shop17": 1})
        await mall.publish(3, 17, 29)
        await mall.publish(5, due=kit.clock.now() + timedelta(hours=1))

        await kit.drain()
        assert mall.received == {"shop29": 1}
        await kit.drain(until="2h")

        assert mall.received == {"shop29": 1, "shop17": 1, "shop3": 1, "shop5": 1}


async def test_a_paused_destination_waits_and_no_other_does(store: str) -> None:
    mall = Mall("memory://")
    async with Kit(mall.app, store=store) as kit:
        await mall.publish(1, 2)
        await kit.operations.pause("shop1", by="ada")

        await kit.drain()
        assert mall.received == {"shop2": 1}
        await kit.operations.resume("shop1", by="ada")
        await kit.drain()

        assert mall.received == {"shop1": 1, "shop2": 1}


@pytest.mark.parametrize("first", [0, MANY - 1])
async def test_a_worker_hears_of_work_at_any_of_them(store: str, first: int) -> None:
    mall = Mall(store, poll="60s")
    async with mall.app, mall.app.worker():
        await mall.publish(first)
        await eventually(lambda: mall.received[f"shop{first}"] == 1, what="it is delivered")
        await mall.publish(MANY // 2)
        await eventually(lambda: mall.received[f"shop{MANY // 2}"] == 1, what="it is delivered")


async def test_a_worker_hears_when_one_of_them_is_resumed(store: str) -> None:
    mall = Mall(store, poll=timedelta(milliseconds=100))
    async with mall.app:
        await mall.publish(7)
        await mall.app.operations.pause("shop7", by="ada")
        async with mall.app.worker():
            await mall.publish(8)
            await eventually(lambda: mall.received["shop8"] == 1, what="it is delivered")
            assert mall.received["shop7"] == 0
            await mall.app.operations.resume("shop7", by="ada")
            await eventually(lambda: mall.received["shop7"] == 1, what="it is delivered")


async def test_one_that_hangs_keeps_no_other_waiting(store: str) -> None:
    mall = Mall(store, concurrency=8)
    hanging = asyncio.Event()

    async def hang(event: Event[Any]) -> None:
        await hanging.wait()

    mall.app.handler("hang.*", name="hang")(hang)
    async with mall.app, mall.app.worker():
        await mall.app.publish_many([NewEvent(type="hang.x", payload=n) for n in range(50)])
        await mall.publish(*range(MANY))
        try:
            await eventually(lambda: sum(mall.received.values()) == MANY, what="all get theirs")
        finally:
            hanging.set()


async def test_a_drain_ends_beside_many_that_are_held_back(store: str) -> None:
    app = Redrive("memory://")
    declare: Any = app.handler
    received: list[str] = []

    async def receive(event: Event[Any]) -> None:
        received.append(event.type)

    for number in range(MANY):
        declare("sale.*", name=f"held{number}", rate="1/h")(receive)
    declare("other.*", name="other")(receive)
    async with Kit(app, store=store) as kit:
        await app.publish("sale.begun")
        await app.publish("sale.ended")
        await app.publish("other.thing", due=kit.clock.now() + timedelta(minutes=1))

        async with asyncio.timeout(LONGEST_SECONDS):
            tally = await kit.drain(until="2m")

        assert tally.delivered == MANY + 1
        assert Counter(received) == {"sale.begun": MANY, "other.thing": 1}
