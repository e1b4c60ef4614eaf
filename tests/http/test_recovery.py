"""A service that was down is found soon after it is back; nothing has died of it."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from redrive import Redrive
from redrive.model.delivery import Status
from redrive.store import Query
from redrive.transports.http import http
from tests.http.receiver import receiving
from tests.scale import IS_LONG

EVENTS = 40
OUTAGES = [1.0, 20.0] if IS_LONG else [1.0]


class Service:
    """A web service that is down for a while; it keeps when it took what."""

    def __init__(self, seconds: float) -> None:
        self.up_at = asyncio.get_running_loop().time() + seconds
        self.taken: list[float] = []
        self.has_all = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        now = asyncio.get_running_loop().time()
        if now < self.up_at:
            return web.Response(status=503)
        self.taken.append(now)
        if len(self.taken) == EVENTS:
            self.has_all.set()
        return web.Response(status=204)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", OUTAGES)
async def test_deliveries_go_on_soon_after_an_outage(store: str, seconds: float) -> None:
    app = Redrive(store)
    async with receiving() as receiver:
        service = Service(seconds)
        receiver.always(service.answer)
        app.destination(
            "crm", "order.*", transport=http(receiver.url, allow_private=True), order="park"
        )
        async with app, app.worker():
            for number in range(EVENTS):
                await app.publish("order.paid", number, key=f"order-{number % 8}")
            async with asyncio.timeout(120):
                await service.has_all.wait()
            failed = await app.operations.deliveries(Query(status=Status.FAILED), limit=10)

        assert list(failed.deliveries) == []
        assert service.taken[0] - service.up_at <= max(5.0, seconds / 2) + 2.0
