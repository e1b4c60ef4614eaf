from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from redrive import Redrive
from redrive.testing import ScriptedDestination
from tests.joining.drivers import ALL, Shop

SERVER = "postgresql://redrive@127.0.0.1:54329/postgres"
_numbers = itertools.count(1)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty store in PostgreSQL."""
    schema = f"join_{os.getpid()}_{next(_numbers)}"
    yield f"{SERVER}?schema={schema}"
    asyncio.run(_execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


async def _execute(statement: str) -> None:
    connection = await asyncpg.connect(SERVER)
    await connection.execute(statement)
    await connection.close()


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
