"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from redrive.stores.sqlite import SqliteStore
from tests.conformance import DurableStoreConformance, MakeStore


class TestSqliteStore(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda clock: SqliteStore(tmp_path / "redrive.db", clock=clock, history=20)
