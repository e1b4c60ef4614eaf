"""What a worker needs in memory: idle, and with 1,000 deliveries in flight."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.process import fill_task
from benchmarks.study import Scale, Section, Study, engine_of
from redrive import Event, Redrive

__all__ = ["STUDY"]

_IN_FLIGHT = 1_000


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    del scale  # memory is the same each time
    module = engine_of(arena)
    url: str = importlib.import_module(f"benchmarks.contenders.{module}").Queue(place).url
    app = Redrive(url, concurrency=_IN_FLIGHT)
    began, full, released = 0, asyncio.Event(), asyncio.Event()

    async def handle(event: Event[Any]) -> None:  # noqa: ARG001 - it only waits
        nonlocal began
        began += 1
        if began == _IN_FLIGHT:
            full.set()
        await released.wait()

    app.handler("order.*", name="noop")(handle)
    async with app, app.worker():
        await asyncio.sleep(1)
        idle = _resident_mb()
        # By another process, so that publishing them leaves nothing here.
        command = [sys.executable, "-m", "benchmarks.child", fill_task(module, place, _IN_FLIGHT)]
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        await full.wait()
        await asyncio.sleep(1)
        loaded = _resident_mb()
        released.set()
    yield Run(figures={"mb": idle}, point="idle")
    each = (loaded - idle) * 1e3 / _IN_FLIGHT
    yield Run(figures={"mb": loaded, "kb_each": each}, point=f"{_IN_FLIGHT:,} in flight")


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) * 1024 / 1e6


STUDY = Study(
    title="memory of a worker",
    section=Section.RESOURCES,
    axis="deliveries in flight",
    figures=("mb", "kb_each"),
    measure=_measure,
)
