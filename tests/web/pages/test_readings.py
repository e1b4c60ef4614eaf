"""Readings: what takes long to read of the whole store is read once, until somebody acts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from redrive.operations import Operations
from redrive.testing.clock import FakeClock
from redrive.web.pages.readings import Look, Readings
from tests.waiting import eventually
from tests.web.client import Client
from tests.web.pages.conftest import Shop


class Store:
    """Operations that tell how often they were asked, and take so many seconds."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self.asked = 0
        self.is_gone = False
        self.answering = asyncio.Event()
        self.answering.set()

    async def status(self) -> int:
        return await self._answer()

    async def groups(self, query: str, *, limit: int = 50) -> int:
        return await self._answer()

    async def show(self, number: int) -> int:
        return await self._answer()

    async def _answer(self) -> int:
        self.asked += 1
        number = self.asked
        others_had_a_turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(others_had_a_turn.set)
        await others_had_a_turn.wait()
        await self.answering.wait()
        self._clock.advance(timedelta(seconds=self.seconds))
        if self.is_gone:
            raise TimeoutError("the store is gone")
        return number


class Visitors:
    """Those who look at a store in which each reading takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.clock = FakeClock()
        self.store = Store(self.clock, seconds)
        self.readings = Readings(self.clock)

    def look(self) -> tuple[Look, Any]:
        look = self.readings.look()
        return look, look.over(self.store)  # type: ignore[arg-type]  # it is asked little

    async def status(self) -> tuple[int, float]:
        """Return which reading a new visitor is shown, and how many seconds old it is."""
        look, operations = self.look()
        number = await operations.status()
        now = self.clock.now()
        return number, (now - look.as_of(now)).total_seconds()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "passed", "asked"), [(0.05, 0, 2), (2, 17, 1), (2, 19, 2), (5, 44, 1)]
)
async def test_what_took_long_is_kept_for_nine_times_as_long(
    seconds: float, passed: float, asked: int
) -> None:
    visitors = Visitors(seconds)

    await visitors.status()
    visitors.pass_time(passed)
    await visitors.status()

    await eventually(lambda: visitors.store.asked >= asked, what="it is read anew")
    assert visitors.store.asked == asked


async def test_who_asks_meanwhile_gets_the_same_and_other_questions_their_own() -> None:
    _, operations = Visitors(0).look()

    same = await asyncio.gather(*(operations.groups("a", limit=5) for _ in range(10)))
    other = await operations.groups("a", limit=6)

    assert str((set(same), other)) == "({1}, 2)"


async def test_what_was_read_last_is_shown_while_a_new_reading_is_made_for_all() -> None:
    visitors = Visitors(2)
    assert await visitors.status() == (1, 2)

    visitors.pass_time(19)
    visitors.store.answering.clear()
    shown = [await visitors.status() for _ in range(3)]
    await eventually(lambda: visitors.store.asked == 2, what="it is read anew")
    visitors.store.answering.set()

    assert shown == [(1, 21)] * 3
    await eventually(lambda: _is((2, 2), visitors.status()), what="the new one is shown")


async def test_nobody_is_shown_what_is_older_than_a_minute_and_a_half() -> None:
    visitors = Visitors(7)

    await visitors.status()
    visitors.pass_time(60 + 29)
    visitors.store.answering.clear()
    shown = await visitors.status()
    await eventually(lambda: visitors.store.asked == 2, what="it is read anew")
    visitors.pass_time(1)
    waiting = asyncio.create_task(visitors.status())
    visitors.store.answering.set()

    assert (shown, await waiting) == ((1, 96), (2, 8))


async def test_a_visit_waits_a_tenth_of_a_second_in_all_for_what_may_come_at_once() -> None:
    visitors = Visitors(0.05)
    _, before = visitors.look()
    await before.status()
    await before.groups("a")
    look, operations = visitors.look()

    visitors.store.answering.clear()
    waiting = asyncio.create_task(operations.status())
    await eventually(lambda: visitors.store.asked == 3, what="it is read anew")
    visitors.pass_time(0.1)

    assert [await waiting, await operations.groups("a")] == [1, 2]
    assert visitors.clock.now() - look.as_of(visitors.clock.now()) == timedelta(seconds=0.2)
    await visitors.readings.end()


async def test_nothing_old_is_shown_once_a_new_reading_has_failed() -> None:
    visitors = Visitors(2)

    await visitors.status()
    visitors.pass_time(19)
    visitors.store.is_gone = True
    shown = await visitors.status()

    assert shown == (1, 21)
    await eventually(lambda: _fails(visitors.status()), what="the failure is told")
    visitors.store.is_gone = False
    number, age = await visitors.status()
    assert (number == visitors.store.asked, age) == (True, 2)


async def test_an_act_has_everything_read_anew_also_what_is_being_read() -> None:
    visitors = Visitors(2)

    await visitors.status()
    visitors.readings.forget()
    visitors.store.answering.clear()
    earlier = asyncio.create_task(visitors.status())
    await eventually(lambda: visitors.store.asked == 2, what="it is being read")
    visitors.readings.forget()
    visitors.store.answering.set()

    assert (await visitors.status())[0] == 3
    assert (await earlier)[0] == 2
    assert (await visitors.status())[0] == 3


async def test_one_delivery_is_always_read_anew() -> None:
    visitors = Visitors(2)

    for _ in range(2):
        await visitors.look()[1].show(7)

    assert visitors.store.asked == 2


async def test_who_goes_away_leaves_the_reading_to_others() -> None:
    visitors = Visitors(2)

    visitors.store.answering.clear()
    first, second = (asyncio.create_task(visitors.status()) for _ in range(2))
    await eventually(lambda: visitors.store.asked == 1, what="it is being read")
    first.cancel()
    visitors.store.answering.set()

    assert await second == (1, 2)


async def _is(expected: object, asked: Awaitable[object]) -> bool:
    return await asked == expected


async def _fails(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except TimeoutError:
        return True
    return False


@pytest.fixture
def slow(broken: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop of three dead letters, where it takes two seconds to tell how all is."""
    status = Operations.status

    async def slowly(operations: Operations) -> object:
        broken.kit.clock.advance("2s")
        return await status(operations)

    monkeypatch.setattr(Operations, "status", slowly)
    return broken


async def test_a_page_says_how_old_it_is(slow: Shop) -> None:
    browser = slow.browser()
    at = slow.kit.clock.now()

    await browser.open("/")
    slow.kit.clock.advance("20s")
    page = await browser.open("/")

    assert f"As of {at:%Y-%m-%d %H:%M:%S} UTC (22 s ago)" in page.text


@pytest.mark.parametrize("door", ["page", "api"])
async def test_after_an_act_of_this_server_pages_show_what_came_of_it(
    slow: Shop, door: str
) -> None:
    browser = slow.browser()

    before = await browser.open("/")
    if door == "page":
        await browser.open("/destinations/billing")
        await browser.submit("/destinations/pause", why="they asked us to")
    else:
        await Client(slow.asgi).post("/api/v1/destinations/billing/pause", {"why": "they asked"})
    after = await browser.open("/")

    assert ("paused" in before.text, "paused" in after.text) == (False, True)
