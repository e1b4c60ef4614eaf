"""Everything a person may do; the CLI, the API and the dashboard are thin over it."""

from __future__ import annotations

from redrive.operations.access import Granting
from redrive.operations.acting import Acting
from redrive.operations.archiving import Archiving, PrunePlan
from redrive.operations.drafting import Previewed
from redrive.operations.editing import Editing
from redrive.operations.encrypting import Encrypting
from redrive.operations.erasing import Erasing, Erasure, ErasurePlan
from redrive.operations.explain.schedules import ScheduleFigures
from redrive.operations.gatekeeping import Gatekeeping
from redrive.operations.journal import Journal, Journaling, JournalPage, JournalRecord
from redrive.operations.looking import Story
from redrive.operations.previewing import Previewing, RulePreview, SampleEvent
from redrive.operations.projecting import Projecting
from redrive.operations.replaying import AutomaticReplay, Replaying, ReplayPlan
from redrive.operations.rerouting import BackfillPlan, Rerouting
from redrive.operations.results import Results
from redrive.operations.scheduling import Scheduling
from redrive.operations.secrets import KeepingSecrets
from redrive.operations.services import GatewayDocument, GatewayPlan, PlanStep, Servicing
from redrive.operations.tenants import Tenancy
from redrive.operations.testing import ServiceTest
from redrive.operations.tracing import DeliveryState, EventStory, Tracing
from redrive.operations.trends import Trending
from redrive.operations.trying import TryingOut
from redrive.operations.users import LoggingIn

__all__ = [
    "AutomaticReplay",
    "BackfillPlan",
    "DeliveryState",
    "Erasure",
    "ErasurePlan",
    "EventStory",
    "GatewayDocument",
    "GatewayPlan",
    "Journal",
    "JournalPage",
    "JournalRecord",
    "Operations",
    "PlanStep",
    "Previewed",
    "PrunePlan",
    "ReplayPlan",
    "RulePreview",
    "SampleEvent",
    "ScheduleFigures",
    "ServiceTest",
    "Story",
]


class Operations(
    Results,
    Projecting,
    Editing,
    Tracing,
    Acting,
    Replaying,
    Scheduling,
    Gatekeeping,
    Tenancy,
    Trending,
    Archiving,
    Rerouting,
    Erasing,
    Granting,
    LoggingIn,
    KeepingSecrets,
    Encrypting,
    Servicing,
    TryingOut,
    Journaling,
    Previewing,
):
    """Look at the system and act on it.

    Acts take `by`, who acts, and `why`, and leave an entry in the audit log. They return the ids
    of the deliveries that changed; others were in a status in which the act means nothing.
    """
