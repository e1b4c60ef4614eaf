"""How fast events are published over HTTP, beside a bare starlette endpoint that writes as many."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp

from benchmarks.contender import Arena, Place, Run
from benchmarks.environment import ROOT
from benchmarks.measures.engine import TYPE
from benchmarks.measures.queue import PAYLOAD
from benchmarks.study import Scale, Section, Study, turns

__all__ = ["STUDY", "WAYS", "bare"]

_CONNECTIONS = 100
_PER_CALL = 1_000
_EVENT = {"type": TYPE, "payload": PAYLOAD}
_HEADERS = {"content-type": "application/json"}

WAYS = ("one by one", "by 100 connections", "1,000 a call")


def bare(way: str) -> str:
    """Return the point of the bare endpoint to compare with."""
    return f"{way}, bare starlette"


async def _measure(
    scale: Scale,
    arena: Arena,  # noqa: ARG001 - there is one
    place: Place,
) -> AsyncIterator[Run]:
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(_serving(kind, place.folder / f"serving_{kind}.db"))
            for kind in ("ours", "bare")
        }
        points = {
            point: (url, way)
            for way in WAYS
            for point, url in ((way, servers["ours"]), (bare(way), servers["bare"]))
        }
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, headers=_HEADERS) as session:
            for url, way in points.values():  # what is done first is slower than the rest
                await _publish(session, url, way, max(1, scale.sample // 100))
            for point, (url, way) in turns(points, scale.rounds):
                yield Run(figures=await _publish(session, url, way, scale.sample), point=point)


async def _publish(
    session: aiohttp.ClientSession, url: str, way: str, sample: int
) -> dict[str, float]:
    """Publish in this way, and return how many a second were answered."""
    is_batch = way == WAYS[2]
    clients = _CONNECTIONS if way == WAYS[1] else 1
    events = max(clients, sample // (10 if way == WAYS[0] else 1))
    calls = -(-events // _PER_CALL) if is_batch else events // clients
    body = json.dumps({"events": [_EVENT] * _PER_CALL} if is_batch else _EVENT).encode()
    path = f"{url}/api/v1/events{'/batch' if is_batch else ''}"

    async def publish() -> None:
        for _ in range(calls):
            async with session.post(path, data=body) as answer:
                answer.raise_for_status()
                await answer.read()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(publish())
    seconds = time.perf_counter() - began
    return {"per_second": clients * calls * (_PER_CALL if is_batch else 1) / seconds}


@contextmanager
def _serving(kind: str, path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serving", kind, str(path)],
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
    title="publishing over HTTP",
    section=Section.PROMISES,
    axis="published",
    figures=("per_second",),
    measure=_measure,
    arenas=(Arena.SQLITE,),
)
