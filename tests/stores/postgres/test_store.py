"""The PostgreSQL store keeps the contract."""

import pytest

from redrive.stores.postgres import PostgresStore
from tests.conformance import DurableStoreConformance, MakeStore


class TestPostgresStore(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, postgres_url: str) -> MakeStore:
        return lambda clock: PostgresStore(postgres_url, clock=clock, history=20)
