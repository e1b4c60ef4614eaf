"""Threads that never keep anybody waiting for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from redrive import Event, Redrive, Retry, executor
from redrive.executor import ThreadExecutor
from redrive.stores.sqlite.threads import Threads
from tests.waiting import eventually, spend, spend_at_once


async def test_who_stops_a_duty_that_does_not_end_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor, "_FAREWELL_SECONDS", 0.05)
    may_end = threading.Event()

    async def deaf(_stopped: asyncio.Event) -> None:
        may_end.wait()

    duty = ThreadExecutor().start(deaf, name="redrive-deaf")

    await duty.stop()

    assert "The thread redrive-deaf has not ended" in caplog.text
    may_end.set()


async def test_threads_end_when_nobody_has_their_executor_any_more() -> None:
    both_are_there = threading.Barrier(2)

    def meet() -> threading.Thread:
        both_are_there.wait()
        return threading.current_thread()

    threads = ThreadExecutor()
    working = await asyncio.gather(threads.submit(meet), threads.submit(meet))
    del threads
    gc.collect()

    for thread in working:
        thread.join(30)
    assert [thread.is_alive() for thread in working] == [False, False]


async def test_an_idle_thread_holds_on_to_nothing() -> None:
    class Large:
        """What a function was about."""

    threads, large = ThreadExecutor(), Large()
    gone = weakref.ref(large)

    def look(held: Large) -> int:
        return id(held)

    await threads.submit(partial(look, large))
    del large

    await eventually(lambda: gone() is None, what="the thread has let go")


async def test_nobody_is_told_of_an_error_that_nobody_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Asyncio would say, some time later, that an exception was never retrieved."""
    may_end = threading.Event()

    def fail() -> None:
        may_end.wait()
        raise OSError("no such folder")

    running = asyncio.create_task(Threads().run(fail))
    await spend(0)
    running.cancel()
    may_end.set()
    await asyncio.wait([running])
    assert running.cancelled()
    del running
    gc.collect()

    assert "never retrieved" not in caplog.text


async def test_nobody_is_told_of_what_a_handler_raises_after_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Redrive("memory://")

    @app.handler("order.*", name="slow", timeout="10ms", retry=Retry(max_attempts=1))
    def fail(event: Event[None]) -> None:
        spend_at_once(0.05)
        raise OSError("too late")

    async with app:
        await app.publish("order.paid")
        tally = await app.drain()
    gc.collect()

    assert tally.failed == 1
    assert "never retrieved" not in caplog.text
