"""Real HTTP services on loopback, each with a port and a book of its own.

They run on a thread of their own and know nothing of the store, so that the final count does not
have to believe it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web

from redrive.demo.tempo import Tempo

__all__ = ["Billing", "Service", "Street", "Warehouse"]

T = TypeVar("T")
_ANSWER_SECONDS = 0.25


class Service:
    """A service that takes orders; `effects` counts, by event id, those it acted on."""

    def __init__(self, pace: Tempo) -> None:
        self._pace = pace
        self._runner: web.AppRunner | None = None
        self._port = 0
        self.effects: Counter[str] = Counter()
        self.seconds: Counter[int] = Counter()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where orders are sent."""
        return f"{self.address}/orders"

    def refusal(self, order: dict[str, Any]) -> str:
        """Return why it cannot take an order; nothing if it can."""
        del order
        return ""

    def note(self, request: web.Request, order: dict[str, Any]) -> None:
        """Write an order into the book."""
        del order
        self.effects[request.headers["webhook-id"]] += 1

    async def come_up(self) -> None:
        """Begin to listen, on the port it had before if it had one."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        # What it has begun it ends, although the worker that asked may be gone.
        self._runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def go_down(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def per_second(self, *, until: float, seconds: int) -> tuple[int, ...]:
        """Return how many requests came in each of the last whole seconds of the story."""
        last = int(until)
        return tuple(self.seconds[one] for one in range(last - seconds, last))

    async def _answer(self, request: web.Request) -> web.Response:
        self.seconds[int(self._pace.elapsed)] += 1
        order = await request.json()
        await self._pace.sleep(_ANSWER_SECONDS)
        refusal = self.refusal(order)
        if refusal:
            return web.json_response({"error": refusal}, status=422)
        self.note(request, order)
        return web.Response(status=204)


class Billing(Service):
    """Writes invoices; always works."""


class Warehouse(Service):
    """Packs parcels; `knows_vouchers` says whether the release that runs can read a voucher."""

    def __init__(self, pace: Tempo) -> None:
        super().__init__(pace)
        self.knows_vouchers = True

    def refusal(self, order: dict[str, Any]) -> str:
        """Refuse what no release can read, and vouchers while the one that runs has the bug."""
        if not isinstance(order.get("parcels", 1), int):
            return f"parcels is {order['parcels']}, which is not a number"
        if "voucher" in order and not self.knows_vouchers:
            return f"voucher {order['voucher']} is not a number"
        return ""


class Street:
    """The thread on which the services live, with an event loop of its own."""

    def __init__(self, *services: Service) -> None:
        self._services = services
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="redrive-demo-services", daemon=True
        )

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there, and wait for it here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def __aenter__(self) -> Self:
        self._thread.start()
        for one in self._services:
            await self.run(one.come_up())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self._services:
            await self.run(one.go_down())
        await self.run(_end_the_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_the_rest() -> None:
    """Hang up on whoever was let in just when a port was closed, whom its server does not know."""
    rest = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    for one in rest:
        one.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
