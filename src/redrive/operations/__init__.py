"""Everything a person may do; the CLI, the API and the dashboard are thin over it."""

from __future__ import annotations

from redrive.operations.access import Granting
from redrive.operations.acting import Acting
from redrive.operations.archiving import Archiving, PrunePlan
from redrive.operations.editing import Editing
from redrive.operations.explain.schedules import ScheduleFigures
from redrive.operations.gatekeeping import Gatekeeping
from redrive.operations.looking import Story
from redrive.operations.projecting import Projecting
from redrive.operations.replaying import AutomaticReplay, Replaying, ReplayPlan
from redrive.operations.rerouting import BackfillPlan, Rerouting
from redrive.operations.results import Results
from redrive.operations.scheduling import Scheduling
from redrive.operations.tenants import Tenancy
from redrive.operations.tracing import Condition, EventStory, Tracing
from redrive.operations.users import LoggingIn

__all__ = [
    "AutomaticReplay",
    "BackfillPlan",
    "Condition",
    "EventStory",
    "Operations",
    "PrunePlan",
    "ReplayPlan",
    "ScheduleFigures",
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
    Archiving,
    Rerouting,
    Granting,
    LoggingIn,
):
    """Look at the system and act on it.

    Acts take `by`, who acts, and `why`, and leave an entry in the audit log. They return the ids
    of the deliveries that changed; others were in a status in which the act means nothing.
    """
