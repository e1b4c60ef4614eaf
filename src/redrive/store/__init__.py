"""The store contract, in small roles that speak of intents, never of rows.

A store keeps decisions; it takes none. Times that it compares or stamps come from its own clock,
so that workers whose clocks differ cannot steal leases. Every method that changes something is
atomic: it happens as a whole and is durable when it returns, or nothing happened.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from redrive.store.access import (
    TOKENS_KEPT,
    Access,
    KeptSession,
    KeptToken,
    KeptUser,
    TokenTerms,
)
from redrive.store.calling import Calls, Entrance
from redrive.store.checkup import Checkup, Finding, Level, Miscount, Topic
from redrive.store.effects import (
    ALREADY_APPLIED,
    AppliedLane,
    Effect,
    Effects,
    Ending,
    Followed,
    Following,
)
from redrive.store.encrypting import Encrypting, LineSeal, is_sealed_line
from redrive.store.erasing import Erasable, ErasableSlice, ErasedBatch, Erasing
from redrive.store.events import (
    EventDelivery,
    EventPage,
    EventQuery,
    EventSearch,
    FoundEvent,
)
from redrive.store.gates import Gates, Report, Reported
from redrive.store.housekeeping import (
    Grouping,
    Housekeeping,
    LetterPage,
    LetterQuota,
    Letters,
    Pruned,
    Restored,
)
from redrive.store.inspection import (
    MOST_COMPARED,
    MOST_COUNTED,
    DestinationFigures,
    DueWork,
    Figures,
    Group,
    Inspection,
    LaneFigures,
    LetterFigures,
    Page,
    Query,
    WorkerFigures,
    Workload,
)
from redrive.store.intervention import EVERYTHING, Audit, Intervention
from redrive.store.log import (
    PUBLISHER,
    Append,
    Appended,
    AppendResult,
    CaughtUp,
    Conflict,
    Declarer,
    Entry,
    EventLog,
    Later,
    LoggedEvent,
    LogPage,
    Redeclared,
    Registered,
    Registry,
    RoutesChanged,
    Unique,
    VersionConflict,
)
from redrive.store.projections import (
    MOST_LAG,
    Applying,
    Checkpoint,
    LogNews,
    Projected,
    Projecting,
    ProjectionFigures,
    Projections,
    ReaderTurn,
    Rebuild,
    Swapping,
    Truncating,
)
from redrive.store.queue import (
    FORGOTTEN_AFTER,
    MOST_BYTES,
    Allowance,
    Blame,
    Claim,
    ClaimRequest,
    DeliveryQueue,
    Left,
    Overdue,
    Rescue,
    Serving,
    Settled,
    ShedBlame,
    Work,
)
from redrive.store.replays import (
    AUTO_REPLAY,
    MOST_NEWCOMERS,
    Advance,
    Due,
    Editing,
    NewReplay,
    Replay,
    Replays,
    ReplayStep,
    SeenAutoReplay,
    Selection,
    Survey,
)
from redrive.store.request_logs import RequestBatch, RequestLogs
from redrive.store.rerouting import LOWEST_PRIORITY, Backfilled, LogSlice, Moved, Rerouting
from redrive.store.schedules import KnownSchedule, Schedules, Ticked, Timetable
from redrive.store.secrets import KeptSecret, SealedSecrets, about_secret
from redrive.store.services import Gateway, GatewayChange, KeptVersion, Services
from redrive.store.tenants import TenantFigures, Tenants
from redrive.store.tracking import Admission, Admissions, Rest, TakesOver, Tried
from redrive.store.transactions import Committing, open_transaction, refuse_in_transaction
from redrive.store.trends import EVERYWHERE, KeptTrends, Trends

__all__ = [
    "ALREADY_APPLIED",
    "AUTO_REPLAY",
    "EVERYTHING",
    "EVERYWHERE",
    "FORGOTTEN_AFTER",
    "LOWEST_PRIORITY",
    "MOST_BYTES",
    "MOST_COMPARED",
    "MOST_COUNTED",
    "MOST_LAG",
    "MOST_NEWCOMERS",
    "PUBLISHER",
    "TOKENS_KEPT",
    "Access",
    "Admission",
    "Admissions",
    "Advance",
    "Allowance",
    "Append",
    "AppendResult",
    "Appended",
    "AppliedLane",
    "Applying",
    "Audit",
    "Backfilled",
    "Blame",
    "Calls",
    "Capabilities",
    "CaughtUp",
    "Checkpoint",
    "Checkup",
    "Claim",
    "ClaimRequest",
    "Committing",
    "Conflict",
    "Declarer",
    "DeliveryQueue",
    "DestinationFigures",
    "Due",
    "DueWork",
    "Editing",
    "Effect",
    "Effects",
    "Encrypting",
    "Ending",
    "Entrance",
    "Entry",
    "Erasable",
    "ErasableSlice",
    "ErasedBatch",
    "Erasing",
    "EventDelivery",
    "EventLog",
    "EventPage",
    "EventQuery",
    "EventSearch",
    "Figures",
    "Finding",
    "Followed",
    "Following",
    "FoundEvent",
    "Gates",
    "Gateway",
    "GatewayChange",
    "Group",
    "Grouping",
    "Housekeeping",
    "Inspection",
    "Intervention",
    "KeptSecret",
    "KeptSession",
    "KeptToken",
    "KeptTrends",
    "KeptUser",
    "KeptVersion",
    "KnownSchedule",
    "LaneFigures",
    "Later",
    "Left",
    "LetterFigures",
    "LetterPage",
    "LetterQuota",
    "Letters",
    "Level",
    "LineSeal",
    "LogNews",
    "LogPage",
    "LogSlice",
    "LoggedEvent",
    "Miscount",
    "Moved",
    "NewReplay",
    "Overdue",
    "Page",
    "Projected",
    "Projecting",
    "ProjectionFigures",
    "Projections",
    "Pruned",
    "Query",
    "ReaderTurn",
    "Rebuild",
    "Redeclared",
    "Registered",
    "Registry",
    "Replay",
    "ReplayStep",
    "Replays",
    "Report",
    "Reported",
    "RequestBatch",
    "RequestLogs",
    "Rerouting",
    "Rescue",
    "Rest",
    "Restored",
    "RoutesChanged",
    "Schedules",
    "SealedSecrets",
    "SeenAutoReplay",
    "Selection",
    "Services",
    "Serving",
    "Settled",
    "ShedBlame",
    "Store",
    "Survey",
    "Swapping",
    "TakesOver",
    "TenantFigures",
    "Tenants",
    "Ticked",
    "Timetable",
    "TokenTerms",
    "Topic",
    "Trends",
    "Tried",
    "Truncating",
    "Unique",
    "VersionConflict",
    "Work",
    "WorkerFigures",
    "Workload",
    "about_secret",
    "is_sealed_line",
    "open_transaction",
    "refuse_in_transaction",
]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can do that others cannot; steers the conformance suite and error messages."""

    survives_restart: bool
    is_shared_by_processes: bool
    joins_transactions: bool
    effects_at_once: int = 0
    """How many effects of handlers may be under way in a process; 0 without a database for them."""
    effects_block_writers: bool = False
    """Whether nobody else can write while an effect is under way, so that it has to be short."""

    @property
    def long_seconds(self) -> float:
        """How long a transaction with many effects is to take at most: others may wait for it."""
        return 0.05 if self.effects_block_writers else 0.25


class Store(
    EventLog,
    Registry,
    DeliveryQueue,
    Effects,
    Projections,
    Gates,
    Calls,
    Tenants,
    Inspection,
    EventSearch,
    Intervention,
    Replays,
    Schedules,
    Editing,
    Audit,
    Housekeeping,
    Trends,
    RequestLogs,
    Letters,
    TakesOver,
    Rerouting,
    Erasing,
    Access,
    SealedSecrets,
    Services,
    Encrypting,
    Checkup,
    Protocol,
):
    """All roles together, and the life of the store itself."""

    capabilities: Capabilities

    async def open(self) -> None:
        """Connect and check; create or migrate the schema where that is safe."""

    async def close(self) -> None:
        """Let go of everything; a second call does nothing."""
