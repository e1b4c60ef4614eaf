"""Readings: what takes long to read of the whole store is read once, until somebody acts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.testing.clock import FakeClock
from redrive.web.pages.readings import Readings


class Store:
    """Operations that tell how often they were asked, and take so many seconds."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.asked = 0

    async def status(self) -> int:
        return await self._answer()

    async def groups(self, query: str, *, limit: int = 50) -> int:
        return await self._answer()

    async def show(self, number: int) -> int:
        return await self._answer()

    async def _answer(self) -> int:
        self.asked += 1
        number = self.asked
        self._clock.advance(timedelta(seconds=self._seconds))
        others_had_a_turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(others_had_a_turn.set)
        await others_had_a_turn.wait()
        if self._seconds > 5:
            raise TimeoutError("the store is gone")
        return number


@pytest.mark.parametrize(
    ("seconds", "passed", "asked"), [(0.05, 0, 2), (2, 17, 1), (2, 19, 2), (5, 44, 1)]
)
async def test_what_took_long_is_kept_for_nine_times_as_long(
    seconds: float, passed: float, asked: int
) -> None:
    clock = FakeClock()
    store = Store(clock, seconds)
    shared = Readings(clock).over(store)  # type: ignore[arg-type]  # it is asked little

    await shared.status()
    clock.advance(timedelta(seconds=passed))
    await shared.status()

    assert store.asked == asked


async def test_who_asks_meanwhile_gets_the_same_and_other_questions_their_own() -> None:
    clock = FakeClock()
    store = Store(clock, 0)
    shared = Readings(clock).over(store)  # type: ignore[arg-type]  # it is asked little

    same = await asyncio.gather(*(shared.groups("a", limit=5) for _ in range(10)))  # type: ignore[arg-type]
    other = await shared.groups("a", limit=6)  # type: ignore[arg-type]

    assert str((set(same), other)) == "({1}, 2)"


async def test_an_act_has_everything_read_anew() -> None:
    clock = FakeClock()
    store = Store(clock, 2)
    readings = Readings(clock)
    shared = readings.over(store)  # type: ignore[arg-type]  # it is asked little

    await shared.status()
    readings.forget()
    await shared.status()

    assert store.asked == 2


async def test_one_delivery_is_always_read_anew() -> None:
    clock = FakeClock()
    store = Store(clock, 2)
    shared = Readings(clock).over(store)  # type: ignore[arg-type]  # it is asked little

    for _ in range(2):
        await shared.show(7)

    assert store.asked == 2


async def test_what_failed_is_asked_again() -> None:
    clock = FakeClock()
    store = Store(clock, 6)
    shared = Readings(clock).over(store)  # type: ignore[arg-type]  # it is asked little

    for _ in range(2):
        with pytest.raises(TimeoutError):
            await shared.status()

    assert store.asked == 2
