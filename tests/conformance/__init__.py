"""The behaviour every store must show, as tests that a store's author subclasses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from redrive.errors import StoreUnavailableError
from tests.conformance.access import TokenConformance, UserConformance
from tests.conformance.auto_replaying import AutoReplayConformance, EditConformance
from tests.conformance.backfilling import BackfillConformance
from tests.conformance.calling import CallingConformance
from tests.conformance.claiming import (
    ClaimingConformance,
    KindConformance,
    RoomConformance,
)
from tests.conformance.declaring import DeclarationConformance
from tests.conformance.durability import DurabilityConformance, WaitingConformance
from tests.conformance.effects import EffectConformance, InboxConformance
from tests.conformance.erasing import ErasingConformance
from tests.conformance.events import EventSearchConformance
from tests.conformance.fencing import FencingConformance
from tests.conformance.following import FollowerConformance
from tests.conformance.gating import (
    BreakerConformance,
    PauseConformance,
    RateConformance,
)
from tests.conformance.grouping import GroupConformance
from tests.conformance.inspecting import (
    FigureConformance,
    FindingConformance,
    PagingConformance,
)
from tests.conformance.intervening import (
    AuditConformance,
    AuditQueryConformance,
    InterventionConformance,
    ReplayConformance,
    ScopeConformance,
)
from tests.conformance.lanes import LaneConformance
from tests.conformance.lettering import LetterConformance
from tests.conformance.looking import LapConformance
from tests.conformance.ordering import OrderConformance
from tests.conformance.outages import (
    AutoPauseConformance,
    HealthCheckConformance,
    RampConformance,
    ShedConformance,
)
from tests.conformance.overriding import OverrideConformance
from tests.conformance.partitions import PartitionConformance
from tests.conformance.projecting import ProjectionConformance, ProjectionEffectConformance
from tests.conformance.publishing import PublishingConformance, RegistryConformance
from tests.conformance.quotas import (
    LimitConformance,
    WatchConformance,
    WorkloadConformance,
)
from tests.conformance.reading import LogConformance, LogReaderConformance, VersionConformance
from tests.conformance.regrouping import RegroupConformance
from tests.conformance.replaying import ReplaysConformance, SurveyConformance
from tests.conformance.request_logs import RequestLogConformance
from tests.conformance.rerouting import MoveConformance, RemovalConformance
from tests.conformance.rescuing import (
    DeadlineConformance,
    RescueConformance,
    SuspectConformance,
)
from tests.conformance.retention import RetentionConformance
from tests.conformance.secrets import SecretConformance
from tests.conformance.sending import SendingConformance
from tests.conformance.services import ServiceConformance
from tests.conformance.settling import LeaseConformance, SettlingConformance
from tests.conformance.shared_rates import SharedRateConformance
from tests.conformance.sharing import FairnessConformance
from tests.conformance.stored_schedules import StoredScheduleConformance
from tests.conformance.taking_over import TakingOverConformance
from tests.conformance.tenants import TenantFigureConformance, TenantLimitConformance
from tests.conformance.ticking import TickConformance
from tests.conformance.transitions import TransitionConformance
from tests.conformance.trends import TrendConformance
from tests.conformance.unreadable import UnreadableConformance
from tests.conformance.versions import RebuildConformance, VersionsConformance
from tests.conformance.workers import (
    AddresseesConformance,
    ExchangeConformance,
    WorkerConformance,
)
from tests.conformance.world import MakeStore, World, an_event, entries

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
    LogReaderConformance,
    VersionConformance,
    RegistryConformance,
    ClaimingConformance,
    KindConformance,
    RoomConformance,
    CallingConformance,
    RequestLogConformance,
    SettlingConformance,
    FencingConformance,
    TransitionConformance,
    LeaseConformance,
    EffectConformance,
    InboxConformance,
    FollowerConformance,
    ProjectionConformance,
    PartitionConformance,
    VersionsConformance,
    RebuildConformance,
    RescueConformance,
    SuspectConformance,
    DeadlineConformance,
    LaneConformance,
    LapConformance,
    OrderConformance,
    BreakerConformance,
    RateConformance,
    PauseConformance,
    OverrideConformance,
    SharedRateConformance,
    AutoPauseConformance,
    HealthCheckConformance,
    RampConformance,
    ShedConformance,
    ExchangeConformance,
    AddresseesConformance,
    WorkerConformance,
    FairnessConformance,
    TenantLimitConformance,
    TenantFigureConformance,
    FindingConformance,
    PagingConformance,
    EventSearchConformance,
    GroupConformance,
    RegroupConformance,
    FigureConformance,
    ReplayConformance,
    ScopeConformance,
    InterventionConformance,
    ReplaysConformance,
    SendingConformance,
    SurveyConformance,
    AutoReplayConformance,
    StoredScheduleConformance,
    TickConformance,
    TrendConformance,
    EditConformance,
    AuditConformance,
    AuditQueryConformance,
    TokenConformance,
    SecretConformance,
    UserConformance,
    RetentionConformance,
    LimitConformance,
    WatchConformance,
    WorkloadConformance,
    LetterConformance,
    TakingOverConformance,
    UnreadableConformance,
    RemovalConformance,
    MoveConformance,
    BackfillConformance,
    ErasingConformance,
    DeclarationConformance,
    ServiceConformance,
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
        """Open a world around a new store; whatever happened in it, the kept counts are right."""
        async with World.opened(make_store, history=self.history) as world:
            yield world
            with suppress(StoreUnavailableError):  # it is closed already
                assert list(await world.store.miscounts()) == []

    async def test_the_suite_fits_the_capabilities(self, world: World) -> None:
        """A store that claims to last must show it."""
        capabilities = world.store.capabilities
        is_durable = capabilities.survives_restart and capabilities.is_shared_by_processes

        assert isinstance(self, DurabilityConformance) is is_durable


class DurableStoreConformance(StoreConformance, DurabilityConformance, ProjectionEffectConformance):
    """The whole suite, for a store that outlives its process."""
