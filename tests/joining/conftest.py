from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from redrive import Redrive
from redrive.testing import ScriptedDestination
from tests.joining.drivers import ALL, Shop


@pytest.fixture
def billing() -> ScriptedDestination:
    """The one destination, which remembers what it gets."""
    return ScriptedDestination("billing")


@pytest.fixture
async def app(postgres_url: str, billing: ScriptedDestination) -> AsyncIterator[Redrive]:
    app = Redrive(postgres_url)
    app.handler("order.*")(billing)
    async with app:
        yield app
    await asyncio.to_thread(app.sync.close)


@pytest.fixture(params=ALL, ids=lambda driver: driver.__name__)
async def shop(
    request: pytest.FixtureRequest, app: Redrive, postgres_url: str
) -> AsyncIterator[Shop]:
    """A shop with a table of its own, that pays by each of the drivers in turn."""
    async with request.param(app, postgres_url).opened() as shop:
        yield shop
