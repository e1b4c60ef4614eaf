"""The PostgreSQL store keeps the contract."""

import asyncio
import itertools
import os
from collections.abc import Iterator

import asyncpg
import pytest

from redrive.stores.postgres import PostgresStore
from redrive.testing.conformance import DurableStoreConformance, MakeStore

_numbers = itertools.count(1)
URL = "postgresql://redrive@127.0.0.1:54329/postgres"


class TestPostgresStore(DurableStoreConformance):
    @pytest.fixture
    def make_store(self) -> Iterator[MakeStore]:
        schema = f"redrive_{os.getpid()}_{next(_numbers)}"
        yield lambda clock: PostgresStore(f"{URL}?schema={schema}", clock=clock, history=20)

        async def drop() -> None:
            connection = await asyncpg.connect(URL)
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            await connection.close()

        asyncio.run(drop())
