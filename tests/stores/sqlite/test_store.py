"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from redrive.stores.sqlite import SqliteStore
from tests.conformance import DurableStoreConformance, MakeStore


class TestSqliteStore(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, sqlite_url: str) -> MakeStore:
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        return lambda clock: SqliteStore(path, clock=clock, history=20)
