"""How soon the supervisor starts a process again: sooner if the last one lived for long."""

from __future__ import annotations

import asyncio
import logging
import re
import sys

import pytest

from redrive.clock import SystemClock
from redrive.worker import supervisor
from redrive.worker.supervisor import Supervisor
from tests.waiting import eventually

_DELAY = re.compile(r"starts in (\S+) s")


@pytest.mark.parametrize(
    ("healthy_seconds", "delays"),
    [(600.0, ["0.1", "0.2", "0.4"]), (0.0, ["0.1", "0.1", "0.1"])],
    ids=["died soon", "lived for long"],
)
async def test_a_process_is_started_again_the_later_the_more_often_it_dies_soon(
    healthy_seconds: float,
    delays: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(supervisor, "_HEALTHY_SECONDS", healthy_seconds)
    caplog.set_level(logging.WARNING, logger="redrive")
    dying = Supervisor(
        lambda _: [sys.executable, "-c", "raise SystemExit(1)"], processes=1, clock=SystemClock()
    )

    def told() -> list[str]:
        return _DELAY.findall(caplog.text)

    async with asyncio.TaskGroup() as group:
        group.create_task(dying.run())
        await eventually(lambda: len(told()) >= len(delays), what="as many deaths")
        dying.stop()

    assert told()[: len(delays)] == delays
