"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from redrive.stores.sqlite import SqliteStore, counting
from tests.conformance import DurableStoreConformance, MakeStore


@pytest.fixture(autouse=True)
def count_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count so little at once that there is always something that was counted."""
    monkeypatch.setattr(counting, "MUCH", 2)


class TestSqliteStore(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, sqlite_url: str) -> MakeStore:
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        return lambda clock: SqliteStore(path, clock=clock, history=20)
