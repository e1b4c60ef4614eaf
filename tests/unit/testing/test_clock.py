"""The fake clock moves when told to, and wakes whoever has slept long enough."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import ConfigurationError
from redrive.testing.clock import FakeClock


def test_time_stands_still_until_it_is_advanced() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    clock = FakeClock(start)

    before = (clock.now(), clock.monotonic())
    clock.advance("1m30s")
    clock.advance(timedelta(microseconds=1))

    assert before == (start, 0.0)
    assert clock.now() == start + timedelta(seconds=90, microseconds=1)
    assert clock.monotonic() == pytest.approx(90.000001, abs=1e-9)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ConfigurationError, match="negative"):
        FakeClock().advance(timedelta(seconds=-1))


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = FakeClock()
    sleeper = asyncio.ensure_future(clock.sleep(5))
    await clock.sleep(0)

    clock.advance("4s")
    early = await asyncio.wait([sleeper], timeout=0.01)
    clock.advance("1s")
    await sleeper

    assert early == (set(), {sleeper})


async def test_a_sleep_of_nothing_ends_at_once() -> None:
    clock = FakeClock()

    await clock.sleep(0)
    await clock.sleep(-1)


async def test_another_thread_may_advance_the_clock() -> None:
    clock = FakeClock()
    sleeper = asyncio.ensure_future(clock.sleep(5))
    await clock.sleep(0)

    thread = threading.Thread(target=clock.advance, args=("5s",))
    thread.start()
    await sleeper

    thread.join()
