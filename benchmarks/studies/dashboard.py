"""How long the server takes for each page of the dashboard on a large store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from starlette.types import ASGIApp

from benchmarks.contender import Arena, Place, Run
from benchmarks.environment import ROOT
from benchmarks.figures import percentile
from benchmarks.measures.history import History, fill_history, name_of
from benchmarks.measures.shop import store_url
from benchmarks.study import Scale, Section, Study
from redrive import Redrive
from redrive.operations import Operations
from redrive.store import Query
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sqlite.session import SqliteSession
from redrive.web.server import HttpServer, listen
from tests.web.client import Client

__all__ = ["LISTENERS", "STUDY", "addresses", "listeners"]

LISTENERS = 200
_LEAST_VISITS = 20
_SETTLING_SECONDS = 3.0


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    url = store_url(arena, place, "dashboard")
    history = History(letters=scale.large, destinations=max(50, scale.large // 100))
    await fill_history(url, history)
    async with Redrive(url) as app:
        asgi = app.asgi(login=False)
        visits = max(_LEAST_VISITS, scale.sample // 1_000)
        for point, some in (await addresses(app.operations, history)).items():
            yield Run(figures=await _visit(asgi, some, visits), point=point)
        for count in (1, LISTENERS):
            figures = await _listen(asgi, count, scale.seconds)
            yield Run(figures=figures, point=listeners(count))


def listeners(count: int) -> str:
    """Return the point of so many who look at the overview."""
    return f"{count} on the overview"


async def _visit(asgi: ASGIApp, some: Sequence[str], visits: int) -> dict[str, float]:
    """Ask for these again and again, and return how long the server takes."""
    client, taken = Client(asgi), []
    for number in range(visits + 1):
        path = some[number % len(some)]
        began = time.perf_counter()
        answer = await client.get(path)
        taken.append((time.perf_counter() - began) * 1e3)
        assert answer.status == 200, (path, answer.status, answer.body[-2_000:])
    del taken[0]  # whatever is asked for first finds nothing at hand
    return {"p50_ms": percentile(taken, 0.5), "p95_ms": percentile(taken, 0.95)}


async def addresses(operations: Operations, history: History) -> dict[str, Sequence[str]]:
    """Return what is asked for of each page: large and small, new and old, by every filter."""
    groups = await operations.groups(limit=40)
    named = [f"/dead-letters/groups/{one.id}" for one in groups]
    letters = (await operations.dead_letters(limit=20)).deliveries
    [old] = (await operations.dead_letters(Query(group=groups[-1].id), limit=1)).deliveries
    waiting = 4 * history.letters + history.pending
    numbers = [old.id, *(one.id for one in letters), 2 * history.letters, waiting]
    events = [one.event_id for one in (old, *letters)]
    names = [name_of(one) for one in (1, 3, 4, 5, 13, 14, 15, history.destinations - 1)]
    return {
        "/": ["/"],
        "/?over=week": ["/?over=day", "/?over=week"],
        "/destinations": ["/destinations"],
        "/destinations?…": [
            "/destinations?sort=pending",
            "/destinations?sort=oldest&page=3",
            "/destinations?show=attention",
            "/destinations?name=service-42",
        ],
        "/destinations/{name}": [f"/destinations/{one}" for one in names],
        "/destinations/{name}?over=week": [f"/destinations/{one}?over=week" for one in names],
        "/services": ["/services", "/services?name=api-3", "/services?page=3"],
        "/services/{name}": ["/services/api-0", "/services/api-4"],
        "/rules": ["/rules", "/rules?name=rule-3"],
        "/rules/{name}": ["/rules/rule-0", "/rules/rule-4"],
        "/sources": ["/sources"],
        "/sources/{name}": ["/sources/door-0"],
        "/dead-letters": ["/dead-letters"],
        "/dead-letters?destination=": [f"/dead-letters?destination={one}" for one in names],
        "/dead-letters?tenant=": [f"/dead-letters?tenant=tenant-{one}" for one in (1, 7, 500)],
        "/dead-letters?text=": ["/dead-letters?text=certificate", "/dead-letters?text=nowhere"],
        "/dead-letters?show=resolved": ["/dead-letters?show=resolved"],
        "/dead-letters/groups/{group}": named,
        "/dead-letters/groups/{group}/replay": [f"{one}/replay" for one in named],
        "/deliveries/{id:int}": [f"/deliveries/{one}" for one in numbers],
        "/events/{name}": [f"/events/{one}" for one in events],
        "/search": ["/search"],
        "/search?key=": ["/search?key=key-77", "/search?key=key-nowhere"],
        "/search?type=": ["/search?type=order.type-7", "/search?type=order.nowhere"],
        "/search?tenant=": ["/search?tenant=tenant-7", "/search?tenant=nobody"],
        "/search?status=": [
            "/search?status=failed",
            "/search?status=delivered",
            "/search?status=pending",
        ],
        "/search?destination=": [
            f"/search?destination={one}&status={status}"
            for one in names
            for status in ("", "failed", "delivered")
        ],
        "/search?text=": ["/search?text=visa-4111", "/search?text=nowhere"],
        "/search?text=&destination=": [
            f"/search?text=nowhere&status=failed&destination={one}" for one in names
        ],
        "/replays": ["/replays", "/replays?before=300"],
        "/replays/{id:int}": ["/replays/1", "/replays/77"],
        "/projections": ["/projections"],
        "/schedules": ["/schedules"],
        "/tenants": ["/tenants", "/tenants?tenant=tenant-7"],
        "/tenants?destination=": [f"/tenants?destination={one}" for one in names],
        "/workers": ["/workers"],
        "/journal": ["/journal"],
        "/audit": ["/audit", "/audit?name=service-7", "/audit?by=nobody"],
        "/erase": ["/erase"],
        "/access": ["/access"],
        "/settings": ["/settings"],
    }


async def _listen(asgi: ASGIApp, count: int, seconds: float) -> dict[str, float]:
    """Tell what it costs that so many look at the overview."""
    with _counted() as queries:
        async with _serving(asgi) as url:
            command = [sys.executable, "-m", "benchmarks.listening", url, str(count)]
            listeners = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert listeners.stdin is not None
            assert listeners.stdout is not None
            await listeners.stdout.readline()  # all of them have a first page
            await asyncio.sleep(_SETTLING_SECONDS)
            before, cpu, began = queries[0], time.process_time(), time.monotonic()
            await asyncio.sleep(seconds)
            passed = time.monotonic() - began
            figures = {
                "cpu_percent": (time.process_time() - cpu) / passed * 100,
                "queries_per_second": (queries[0] - before) / passed,
            }
            listeners.stdin.close()
            got = msgspec.json.decode(await listeners.stdout.read())
            await listeners.wait()
            assert got >= count, f"{count} listeners were sent {got} pages"
    return figures


@asynccontextmanager
async def _serving(asgi: ASGIApp) -> AsyncIterator[str]:
    server = HttpServer(asgi, proxies=[], root_path="", grace=1)
    with listen("127.0.0.1", 0) as listening:
        task = asyncio.create_task(server.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.stop()
        await task


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Count the statements of all transactions meanwhile."""
    count = [0]
    sessions: tuple[Any, ...] = (SqliteSession, PostgresSession)
    before = [one.fetch for one in sessions]

    def counting(fetch: Any) -> Any:  # noqa: ANN401 - it is of either
        def counted(*given: Any) -> Any:  # noqa: ANN401 - as above
            count[0] += 1
            return fetch(*given)

        return counted

    for session, fetch in zip(sessions, before, strict=True):
        session.fetch = counting(fetch)
    try:
        yield count
    finally:
        for session, fetch in zip(sessions, before, strict=True):
            session.fetch = fetch


STUDY = Study(
    title="the dashboard, with a million dead letters",
    section=Section.PROMISES,
    axis="page",
    figures=("p50_ms", "p95_ms", "cpu_percent", "queries_per_second"),
    measure=_measure,
    is_quick=False,
)
