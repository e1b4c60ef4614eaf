"""Threads that never keep anybody waiting for ever."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from redrive import Event, Redrive, Retry, executor
from redrive.executor import ThreadExecutor
from redrive.stores.sqlite.threads import Threads
from tests.waiting import spend, spend_at_once


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
