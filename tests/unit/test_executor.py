"""Threads that never keep anybody waiting for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive import executor
from redrive.executor import ThreadExecutor


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
