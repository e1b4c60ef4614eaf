"""The behaviour every store must show, as tests that a store's author subclasses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redrive.testing.conformance.applying import EffectConformance, InboxConformance
from redrive.testing.conformance.backfilling import BackfillConformance
from redrive.testing.conformance.claiming import (
    ClaimingConformance,
    KindConformance,
    RoomConformance,
)
from redrive.testing.conformance.declaring import DeclarationConformance
from redrive.testing.conformance.fencing import FencingConformance
from redrive.testing.conformance.gating import (
    BreakerConformance,
    PauseConformance,
    RateConformance,
)
from redrive.testing.conformance.grouping import GroupConformance
from redrive.testing.conformance.hoarding import (
    LimitConformance,
    WatchConformance,
    WorkloadConformance,
)
from redrive.testing.conformance.inspecting import (
    FigureConformance,
    FindingConformance,
    PagingConformance,
)
from redrive.testing.conformance.intervening import (
    AuditConformance,
    InterventionConformance,
    ReplayConformance,
)
from redrive.testing.conformance.keeping import KeepingConformance
from redrive.testing.conformance.lanes import LaneConformance
from redrive.testing.conformance.lasting import DurabilityConformance, WaitingConformance
from redrive.testing.conformance.lettering import LetterConformance
from redrive.testing.conformance.ordering import OrderConformance
from redrive.testing.conformance.outages import (
    AutoPauseConformance,
    HealthCheckConformance,
    RampConformance,
    ShedConformance,
)
from redrive.testing.conformance.publishing import PublishingConformance, RegistryConformance
from redrive.testing.conformance.reading import LogConformance, VersionConformance
from redrive.testing.conformance.regrouping import RegroupConformance
from redrive.testing.conformance.replaying import ReplaysConformance, SurveyConformance
from redrive.testing.conformance.rerouting import MoveConformance, RemovalConformance
from redrive.testing.conformance.rescuing import (
    DeadlineConformance,
    RescueConformance,
    SuspectConformance,
)
from redrive.testing.conformance.scheduling import EditConformance, ScheduleConformance
from redrive.testing.conformance.sending import SendingConformance
from redrive.testing.conformance.settling import LeaseConformance, SettlingConformance
from redrive.testing.conformance.sharing import FairnessConformance
from redrive.testing.conformance.telling import ExchangeConformance, WorkerConformance
from redrive.testing.conformance.tenants import TenantFigureConformance, TenantLimitConformance
from redrive.testing.conformance.transitions import TransitionConformance
from redrive.testing.conformance.unreadable import UnreadableConformance
from redrive.testing.conformance.world import MakeStore, World, an_event, entries

__all__ = [
    "DurableStoreConformance",
    "MakeStore",
    "StoreConformance",
    "World",
    "an_event",
    "entries",
]


class StoreConformance(
    PublishingConformance,
    LogConformance,
    VersionConformance,
    RegistryConformance,
    ClaimingConformance,
    KindConformance,
    RoomConformance,
    SettlingConformance,
    FencingConformance,
    TransitionConformance,
    LeaseConformance,
    EffectConformance,
    InboxConformance,
    RescueConformance,
    SuspectConformance,
    DeadlineConformance,
    LaneConformance,
    OrderConformance,
    BreakerConformance,
    RateConformance,
    PauseConformance,
    AutoPauseConformance,
    HealthCheckConformance,
    RampConformance,
    ShedConformance,
    ExchangeConformance,
    WorkerConformance,
    FairnessConformance,
    TenantLimitConformance,
    TenantFigureConformance,
    FindingConformance,
    PagingConformance,
    GroupConformance,
    RegroupConformance,
    FigureConformance,
    ReplayConformance,
    InterventionConformance,
    ReplaysConformance,
    SendingConformance,
    SurveyConformance,
    ScheduleConformance,
    EditConformance,
    AuditConformance,
    KeepingConformance,
    LimitConformance,
    WatchConformance,
    WorkloadConformance,
    LetterConformance,
    UnreadableConformance,
    RemovalConformance,
    MoveConformance,
    BackfillConformance,
    DeclarationConformance,
    WaitingConformance,
):
    """Subclass it in a test file, and say how to make the store.

        class TestMyStore(StoreConformance):
            @pytest.fixture
            def make_store(self, tmp_path: Path) -> MakeStore:
                return lambda clock: MyStore(tmp_path / "store", clock=clock)

    `make_store` gives a function that makes a store, not yet opened, which takes the time from
    the clock it is given. Within one test it may be called several times: what it makes is then
    on the same data, if the store's capabilities say that it can be. Data is fresh in each test.

    A store that survives a restart and is shared by processes subclasses
    `DurableStoreConformance` instead.
    """

    pytestmark = pytest.mark.asyncio

    history = 20
    """How many attempts of a cycle, and how many cycles, the stores made keep."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Return how a store is made."""
        raise NotImplementedError("Override make_store; the docstring of the class shows how.")

    @pytest_asyncio.fixture
    async def world(self, make_store: MakeStore) -> AsyncIterator[World]:
        """Open a world around a new store."""
        async with World.opened(make_store, history=self.history) as world:
            yield world

    async def test_the_suite_fits_the_capabilities(self, world: World) -> None:
        """A store that claims to last must show it."""
        capabilities = world.store.capabilities
        is_durable = capabilities.survives_restart and capabilities.is_shared_by_processes

        assert isinstance(self, DurabilityConformance) is is_durable


class DurableStoreConformance(StoreConformance, DurabilityConformance):
    """The whole suite, for a store that outlives its process."""
