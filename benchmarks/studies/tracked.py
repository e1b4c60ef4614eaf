"""What tracking costs a web handler, with sinks that are dead or hang; and what it saves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.contender import Arena, Place, Run, rate
from benchmarks.environment import ROOT
from benchmarks.figures import percentile
from benchmarks.measures.tracking import FIELDS
from benchmarks.study import Scale, Section, Study, turns
from redrive import Redrive, Tracking
from redrive.transports.file import file

__all__ = ["LOADS", "PUBLISHED", "STUDY", "TRACKED", "point_of"]

LOADS = {
    "as fast as it goes": 0.0,
    "at half of what it can do": 0.5,
    "at three quarters of what it can do": 0.75,
}
"""How often a handler is asked, of what it can do while it tracks."""
TRACKED, PUBLISHED = "into a file, tracked", "into the store, one publish each"
_CONNECTIONS = 4
_SHORTEST_SECONDS = 0.2
_MOST_ROUNDS = 3
"""Each is long enough for a destination that hangs to be given up, and asked again."""
_AT_ONCE = 5_000


def point_of(load: str, is_tracking: bool) -> str:  # noqa: FBT001 - there are two
    """Return the name of a point."""
    return f"a web handler {'that tracks' if is_tracking else 'alone'}, {load}"


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
    """Measure the handler in blocks, with and without tracking by turns, under each load.

    First as fast as it goes: the other loads are shares of what it can do while it tracks.
    """
    seconds = max(_SHORTEST_SECONDS, scale.seconds / 5)
    tracked = 0
    with _serving(folder) as url:
        async with aiohttp.ClientSession() as session:
            able = 0.0
            for load, share in LOADS.items():
                blocks = [_Block(is_tracking=one, load=load, seconds=1.0) for one in (False, True)]
                rates: list[float] = []
                for block in blocks:  # what is done first is slower than the rest
                    tracked += (await block.run(session, url, able * share)).tracked
                points = {one: replace(one, seconds=seconds) for one in blocks}
                for _, block in turns(points, min(_MOST_ROUNDS, scale.rounds)):
                    found = await block.run(session, url, able * share)
                    tracked += found.tracked
                    rates += [found.per_second] * block.is_tracking
                    yield Run(figures=found.figures, point=point_of(load, block.is_tracking))
                able = able or median(rates)
            there = await _settle(session, url)
    if set(there.values()) != {tracked}:  # each has all of it, or the store has
        raise AssertionError(f"{tracked} were tracked, and there is {there}")


@dataclass(frozen=True)
class _Found:
    figures: dict[str, float]
    per_second: float
    tracked: int


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A stretch of requests, and all that comes of them."""

    is_tracking: bool
    load: str
    seconds: float

    async def run(self, session: aiohttp.ClientSession, url: str, per_second: float) -> _Found:
        """Ask so often, or as fast as it goes; the next block begins when all of it is over."""
        before = await _spent(session, url)
        path = f"{url}/page?n=7{'&track' if self.is_tracking else ''}"
        times, took = await _ask(session, path, self.seconds, per_second)
        await _settle(session, url)
        spent = (await _spent(session, url) - before) / len(times)
        return _Found(
            figures={"p99_ms": percentile(times, 0.99) * 1e3, "cpu_us": spent * 1e6},
            per_second=len(times) / took,
            tracked=len(times) * self.is_tracking,
        )


async def _spent(session: aiohttp.ClientSession, url: str) -> float:
    async with session.get(f"{url}/spent") as answer:
        return float(await answer.json())


async def _settle(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    async with session.get(f"{url}/settle") as answer:
        return dict(await answer.json())


async def _ask(
    session: aiohttp.ClientSession, path: str, seconds: float, per_second: float
) -> tuple[list[float], float]:
    """Ask by turns of a few connections; returns how long each took, and all together."""
    took: list[float] = []
    every = _CONNECTIONS / per_second if per_second else 0.0
    begun = time.perf_counter()

    async def ask(at: float) -> None:
        while at < begun + seconds:
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            began = time.perf_counter()
            async with session.get(path) as answer:
                answer.raise_for_status()
                await answer.read()
            ended = time.perf_counter()
            took.append(ended - began)
            at = max(at + every, ended if not every else 0.0)

    async with asyncio.TaskGroup() as group:
        for number in range(_CONNECTIONS):
            group.create_task(ask(begun + number * every / _CONNECTIONS))
    return took, time.perf_counter() - begun


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
