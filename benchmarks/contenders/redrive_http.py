"""Redrive's HTTP destinations, from a store of SQLite, with the breaker they have by default."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version

import aiohttp

from benchmarks.contender import Arena, Contender, Place, Role, Run, Workload, rate
from benchmarks.measures.engine import TYPE
from benchmarks.measures.queue import PAYLOAD
from benchmarks.measures.workloads import run_on_loop
from redrive import NewEvent, Redrive, http

__all__ = ["CONTENDER"]

_CONNECTIONS = 100
# While some are settled, others keep the connections busy.
_CONCURRENCY = 2 * _CONNECTIONS
_PER_CALL = 1_000


def _app(place: Place) -> Redrive:
    app = Redrive(f"sqlite:///{place.folder}/redrive.db", concurrency=_CONCURRENCY)
    transport = http(place.url, allow_networks=["127.0.0.1"], connections=_CONNECTIONS)
    app.destination("crm", "order.*", transport=transport)
    return app


async def _send(size: int, place: Place) -> Run:
    app = _app(place)
    async with app:
        for begin in range(0, size, _PER_CALL):
            count = min(_PER_CALL, size - begin)
            await app.publish_many([NewEvent(type=TYPE, payload=PAYLOAD)] * count)
        began = time.perf_counter()
        tally = await app.drain()
        seconds = time.perf_counter() - began
    assert (tally.delivered, tally.attempts) == (size, size)
    return rate(size, seconds, f"one worker, concurrency {_CONCURRENCY}")


def _describe(place: Place) -> Mapping[str, str]:
    del place
    return {
        "library": f"redrive {version('redrive')}, aiohttp {aiohttp.__version__}",
        "store": "SQLite, synchronous FULL",
        "connections": str(_CONNECTIONS),
        "concurrency": str(_CONCURRENCY),
    }


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    arena=Arena.HTTP,
    describe=_describe,
    workloads={Workload.SEND: lambda size, place: run_on_loop(_send(size, place))},
)
