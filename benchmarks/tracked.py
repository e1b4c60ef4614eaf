"""A web handler that tracks, as a process of its own: `python -m benchmarks.tracked FOLDER`.

What it tracks goes to three sinks: one takes it, one is dead, and one hangs. `/settle` waits until
everything has an end, and tells where it is; `/spent` tells how many seconds of processors it took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from redrive import Redrive, Tracking
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded

__all__ = ["make_app", "make_web"]


class Good:
    """Takes everything."""

    batch = 500
    taken = 0

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.taken += len(deliveries)
        return [Succeeded()] * len(deliveries)


class Dead:
    """Refuses everything."""

    batch = 500

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        raise ConnectionError(f"nobody is there for {len(deliveries)}")


class Hung:
    """Never answers."""

    batch = 500

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        await asyncio.Event().wait()
        return [Succeeded()] * len(deliveries)


def make_app(folder: Path) -> tuple[Redrive, Good]:
    """Return the app, and its good sink."""
    app = Redrive(
        f"sqlite:///{folder}/tracked.db", journal=folder / "journal", tracking=Tracking(rate=None)
    )
    good = Good()
    app.destination("good", "page.*", transport=good)
    app.destination("dead", "page.*", transport=Dead())
    app.destination("hung", "page.*", transport=Hung())
    return app, good


def make_web(app: Redrive, good: Good) -> Starlette:
    """Return the web application: a handler that does a little work, and tracks if it is told."""

    async def page(request: Request) -> JSONResponse:
        number = int(request.query_params["n"])
        found = [{"order": one, "price": one * number % 100} for one in range(50)]
        if "track" in request.query_params:
            app.track("page.seen", {"n": number, "found": len(found)})
        return JSONResponse(found)

    async def settle(request: Request) -> JSONResponse:
        del request
        figures = await app.flush("60s")
        status = await app.operations.status()
        kept = {one.name: one.pending + one.failed for one in status.destinations}
        there = {**kept, "good": kept["good"] + good.taken, "tracked": figures.tracked}
        return JSONResponse(there)

    async def spent(request: Request) -> JSONResponse:
        del request
        return JSONResponse(time.process_time())

    pages = {"/page": page, "/settle": settle, "/spent": spent}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in pages.items()])


def _serve(folder: Path) -> None:
    app, good = make_app(folder)
    config = uvicorn.Config(make_web(app, good), port=0, log_level="critical", loop="auto")
    server = uvicorn.Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
        await app.close()

    asyncio.run(run())


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
