"""What tests of the PostgreSQL store are given: a store, its trips, and somebody beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.pool import Link
from tests.conformance import World


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with World.opened(
        lambda clock: PostgresStore(postgres_url, clock=clock, history=20), history=20
    ) as world:
        yield world


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that are sent to the server."""
    sent: list[str] = []
    fetch = Link.fetch

    async def noted(self: Link, statement: str, *values: object) -> list[Any]:
        sent.append(statement)
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Link, "fetch", noted)
    return sent


@pytest_asyncio.fixture
async def person(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection of somebody else, in the schema of the store."""
    address = read_address(postgres_url)
    connection = await asyncpg.connect(address.dsn)
    await connection.execute(f"SET search_path = {address.schema}")
    yield connection
    await connection.close()
