"""Encrypted stores keep the contract: all of it that comes near a payload."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance import MakeStore, World
from tests.conformance.auto_replaying import AutoReplayConformance
from tests.conformance.backfilling import BackfillConformance
from tests.conformance.effects import InboxConformance
from tests.conformance.erasing import ErasingConformance
from tests.conformance.intervening import ReplayConformance
from tests.conformance.publishing import PublishingConformance
from tests.conformance.quotas import LimitConformance
from tests.conformance.regrouping import RegroupConformance
from tests.conformance.request_logs import RequestLogConformance
from tests.conformance.settling import SettlingConformance
from tests.conformance.taking_over import TakingOverConformance
from tests.conformance.workers import AddresseesConformance, ExchangeConformance
from tests.stores.encrypted import EncryptedPostgres, EncryptedSqlite, a_vault


class EncryptedConformance(
    PublishingConformance,
    SettlingConformance,
    ExchangeConformance,
    AddresseesConformance,
    RequestLogConformance,
    TakingOverConformance,
):
    """What comes near a payload."""

    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def world(self, make_store: MakeStore) -> AsyncIterator[World]:
        async with World.opened(make_store, history=20) as world:
            yield world


class TestEncryptedSqlite(
    EncryptedConformance,
    ReplayConformance,
    LimitConformance,
    RegroupConformance,
    AutoReplayConformance,
    BackfillConformance,
    InboxConformance,
    ErasingConformance,
):
    # It starts a replay by a text, and there is none to be searched for.
    test_what_a_replay_was_started_for_is_erased_once_it_is_over = None  # type: ignore[assignment]

    @pytest.fixture
    def make_store(self, sqlite_url: str) -> MakeStore:
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        return lambda clock: EncryptedSqlite(path, clock=clock, history=20, vault=a_vault())


class TestEncryptedPostgres(EncryptedConformance):
    @pytest.fixture
    def make_store(self, postgres_url: str) -> MakeStore:
        return lambda clock: EncryptedPostgres(
            postgres_url, clock=clock, history=20, vault=a_vault()
        )
