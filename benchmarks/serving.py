"""A server to publish to, as a process of its own: `python -m benchmarks.serving ours|bare FILE`.

Ours is the HTTP API with one destination. The bare one is the least that answers likewise:
starlette reads the body, and writes a row for each event in one commit that is as durable as ours.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import apsw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from redrive import Event, Redrive
from redrive.cli.worker import loop_factory
from redrive.web.server import HttpServer, collect_less, listen

__all__ = ["make_bare", "make_ours"]

_INSERT = "INSERT INTO events (id, type, payload) VALUES (?, ?, ?)"


def make_ours(path: Path) -> ASGIApp:
    """Return our API, on a store in this file."""
    app = Redrive(f"sqlite:///{path}")

    @app.handler("order.*", name="noop")
    async def handle(event: Event[object]) -> None: ...

    return app.asgi(login=False)


def make_bare(path: Path) -> ASGIApp:
    """Return the bare endpoints, on a table in this file."""
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, type TEXT, payload TEXT)")
    last = 0

    def write(events: list[dict[str, object]]) -> list[int]:
        nonlocal last
        numbers = list(range(last + 1, last + 1 + len(events)))
        last += len(events)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            _INSERT,
            [
                (number, str(one["type"]), json.dumps(one["payload"]))
                for number, one in zip(numbers, events, strict=True)
            ],
        )
        connection.execute("COMMIT")
        return numbers

    async def publish(request: Request) -> JSONResponse:
        [number] = write([await request.json()])
        return JSONResponse({"event_id": number})

    async def publish_batch(request: Request) -> JSONResponse:
        numbers = write((await request.json())["events"])
        return JSONResponse({"receipts": [{"event_id": one} for one in numbers]})

    return Starlette(
        routes=[
            Route("/api/v1/events", publish, methods=["POST"]),
            Route("/api/v1/events/batch", publish_batch, methods=["POST"]),
        ]
    )


async def _serve(asgi: ASGIApp) -> None:
    server = HttpServer(asgi, proxies=[], root_path="", grace=1)
    with listen("127.0.0.1", 0) as listening:
        collect_less()
        print(listening.getsockname()[1], flush=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listening]))
            await asyncio.to_thread(sys.stdin.read)
            server.stop()


if __name__ == "__main__":
    make = {"ours": make_ours, "bare": make_bare}[sys.argv[1]]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(make(Path(sys.argv[2]))))
