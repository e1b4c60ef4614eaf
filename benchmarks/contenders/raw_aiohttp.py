"""The limit of HTTP: a bare client of aiohttp in a loop, with nothing kept anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import aiohttp

from benchmarks.contender import Arena, Contender, Place, Role, Run, Workload, rate
from benchmarks.measures.queue import PAYLOAD
from benchmarks.measures.workloads import run_on_loop

__all__ = ["CONTENDER"]

_TASKS = 100


async def _send(size: int, place: Place) -> Run:
    connector = aiohttp.TCPConnector(limit=_TASKS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(count: int) -> None:
            for _ in range(count):
                async with session.post(place.url, json=PAYLOAD) as answer:
                    assert answer.status == 204
                    await answer.read()

        async with asyncio.TaskGroup() as group:  # connect
            for _ in range(_TASKS):
                group.create_task(send(1))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_TASKS):
                group.create_task(send(size // _TASKS))
        seconds = time.perf_counter() - began
    return rate(size // _TASKS * _TASKS, seconds, f"{_TASKS} tasks, one session")


def _describe(place: Place) -> Mapping[str, str]:
    del place
    return {"library": f"aiohttp {aiohttp.__version__}", "connections": str(_TASKS)}


CONTENDER = Contender(
    name="bare aiohttp",
    role=Role.LIMIT,
    arena=Arena.HTTP,
    describe=_describe,
    workloads={Workload.SEND: lambda size, place: run_on_loop(_send(size, place))},
)
