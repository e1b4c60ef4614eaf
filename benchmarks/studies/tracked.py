"""What tracking costs a web handler, with sinks that are dead or hang; and what it saves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from benchmarks.contender import Arena, Place, Run, rate
from benchmarks.environment import ROOT
from benchmarks.figures import percentile
from benchmarks.measures.tracking import FIELDS
from benchmarks.study import Scale, Section, Study, turns
from redrive import Redrive, Tracking
from redrive.transports.file import file

__all__ = ["ALONE", "BUSY_ALONE", "BUSY_WITH", "PUBLISHED", "STUDY", "TRACKED", "WITH"]

ALONE, WITH = "a web handler alone", "a web handler that tracks"
BUSY_ALONE, BUSY_WITH = f"{ALONE}, as fast as it goes", f"{WITH}, as fast as it goes"
TRACKED, PUBLISHED = "into a file, tracked", "into the store, one publish each"
_CONNECTIONS = 4
_EVERY_SECONDS = 0.01
"""How often each of them asks where a handler is not asked as fast as it goes."""
_REST_SECONDS = 0.1
_AT_ONCE = 5_000


async def _measure(
    scale: Scale,
    arena: Arena,  # noqa: ARG001 - there is one
    place: Place,
) -> AsyncIterator[Run]:
    async for run in _handlers(scale, place.folder):
        yield run
    for number in range(2):
        folders = [place.folder / f"{name}-{number}" for name in ("tracked", "published")]
        for one in folders:
            one.mkdir()
        yield await _track(scale.large // 10, folders[0])
        yield await _publish(max(50, scale.sample // 20), folders[1])


async def _handlers(scale: Scale, folder: Path) -> AsyncIterator[Run]:
    """Measure the handler in blocks, with and without tracking by turns."""
    requests = max(200, scale.sample // 8)
    tracked = 0
    with _serving(folder) as url:
        async with aiohttp.ClientSession() as session:
            for alone, tracks, pause in (
                (ALONE, WITH, _EVERY_SECONDS),
                (BUSY_ALONE, BUSY_WITH, 0.0),
            ):
                for is_tracking in (False, True):  # what is done first is slower than the rest
                    tracked += (
                        len(await _ask(session, url, 100, is_tracking=is_tracking, pause=pause))
                        * is_tracking
                    )
                points = {alone: False, tracks: True}
                for point, is_tracking in turns(points, scale.rounds):
                    before = await _spent(session, url)
                    times = await _ask(session, url, requests, is_tracking=is_tracking, pause=pause)
                    tracked += len(times) * is_tracking
                    if is_tracking:  # what is still on its way is not to burden the next
                        await asyncio.sleep(_REST_SECONDS)
                    spent = (await _spent(session, url) - before) / len(times)
                    figures = {"p99_ms": percentile(times, 0.99) * 1e3, "cpu_us": spent * 1e6}
                    yield Run(figures=figures, point=point)
            async with session.get(f"{url}/settle") as answer:
                there = await answer.json()
    if set(there.values()) != {tracked}:  # each has all of it, or the store has
        raise AssertionError(f"{tracked} were tracked, and there is {there}")


async def _spent(session: aiohttp.ClientSession, url: str) -> float:
    async with session.get(f"{url}/spent") as answer:
        return float(await answer.json())


async def _ask(
    session: aiohttp.ClientSession, url: str, times: int, *, is_tracking: bool, pause: float
) -> list[float]:
    path = f"{url}/page?n=7{'&track' if is_tracking else ''}"
    took: list[float] = []

    async def ask() -> None:
        for _ in range(times // _CONNECTIONS):
            began = time.perf_counter()
            async with session.get(path) as answer:
                answer.raise_for_status()
                await answer.read()
            spent = time.perf_counter() - began
            took.append(spent)
            await asyncio.sleep(max(0.0, pause - spent))

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONNECTIONS):
            group.create_task(ask())
    return took


async def _track(events: int, folder: Path) -> Run:
    """Track into a file, until all of it is there."""
    app = Redrive(
        f"sqlite:///{folder}/tracking.db",
        journal=folder / "journal",
        tracking=Tracking(rate=None),
    )
    path = folder / "events.jsonl"
    app.destination("file", "page.*", transport=file(str(path), batch=500))
    async with app:
        app.track("page.seen", FIELDS)
        await app.flush("60s")
        began = time.perf_counter()
        for number in range(events):
            app.track("page.seen", FIELDS)
            if number % _AT_ONCE == 0:  # as fast as it goes, and no faster
                await app.flush("60s")
        figures = await app.flush("60s")
        seconds = time.perf_counter() - began
    with path.open("rb") as written:
        assert sum(1 for _ in written) == figures.sent == events + 1
    return Run(figures=rate(events, seconds).figures, point=TRACKED)


async def _publish(events: int, folder: Path) -> Run:
    app = Redrive(f"sqlite:///{folder}/publishing.db")
    app.destination("file", "page.*", transport=file(str(folder / "events.jsonl")))
    async with app:
        await app.publish("page.seen", FIELDS)
        began = time.perf_counter()
        for _ in range(events):
            await app.publish("page.seen", FIELDS)
        seconds = time.perf_counter() - began
    return Run(figures=rate(events, seconds).figures, point=PUBLISHED)


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tracked", str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


STUDY = Study(
    title="tracking",
    section=Section.PROMISES,
    axis="way",
    figures=("per_second", "p99_ms", "cpu_us"),
    measure=_measure,
    arenas=(Arena.SQLITE,),
)
