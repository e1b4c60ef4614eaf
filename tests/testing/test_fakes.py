"""The fakes keep the promises of the ports they stand for."""

from __future__ import annotations

import asyncio
import contextvars
import uuid

import pytest

from redrive.testing import FakeClock
from redrive.testing.fakes import CountingIds, InlineExecutor, SeededRng

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def test_counted_ids_have_the_form_of_the_real_ones() -> None:
    ids = CountingIds()

    made = [uuid.UUID(ids.event_id()) for _ in range(3)]

    assert [one.version for one in made] == [7, 7, 7]
    assert made == sorted(set(made))
    assert [ids.worker_id(), ids.worker_id()] == ["worker-1", "worker-2"]


def test_the_same_seed_gives_the_same_chances() -> None:
    one, same, other = SeededRng(7), SeededRng(7), SeededRng(8)

    drawn = [rng.uniform(0, 10) for rng in (one, same, other)]

    assert drawn[0] == drawn[1] != drawn[2]


async def test_a_function_has_run_when_submit_returns() -> None:
    future = InlineExecutor().submit(lambda: 42)

    assert future.result() == 42


async def test_a_function_that_raises_does_so_where_it_is_awaited() -> None:
    def fail() -> None:
        raise LookupError

    def stop() -> None:
        raise StopIteration

    executor = InlineExecutor()

    with pytest.raises(LookupError):
        await executor.submit(fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await executor.submit(stop)


async def test_a_function_sees_the_context_and_cannot_change_it() -> None:
    COLOUR.set("red")

    def paint() -> str:
        before = COLOUR.get()
        COLOUR.set("blue")
        return before

    seen = await InlineExecutor().submit(paint)

    assert seen == "red"
    assert COLOUR.get() == "red"


async def test_a_function_may_run_an_event_loop_of_its_own() -> None:
    async def answer() -> int:
        return 42

    result = await InlineExecutor().submit(lambda: asyncio.run(answer()))

    assert result == 42
    assert asyncio.get_running_loop().is_running()


async def test_a_sleep_counts_from_the_call() -> None:
    """A task that has not begun to sleep when the clock jumps must not oversleep."""
    clock = FakeClock()
    sleeping = asyncio.ensure_future(clock.sleep(3))

    clock.advance("3s")
    await sleeping

    assert clock.monotonic() == 3


async def test_a_duty_runs_beside_its_starter_until_it_is_stopped() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def duty(stopped: asyncio.Event) -> None:
        begun.set()
        await stopped.wait()
        ended.set()

    running = InlineExecutor().start(duty, name="duty")
    await begun.wait()
    await running.stop()

    assert ended.is_set()
