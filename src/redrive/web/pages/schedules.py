"""Schedules: when each ticks, and stopping or running one."""

from __future__ import annotations

import msgspec

from redrive.model.duration import spell_duration
from redrive.model.schedule import Schedule
from redrive.operations import ScheduleFigures
from redrive.policies.schedule import ScheduleState
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "ScheduleRow",
    "Schedules",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "show_schedules",
]

_LEVELS = {
    ScheduleState.TICKING: "ok",
    ScheduleState.PAUSED: "warning",
    ScheduleState.LATE: "error",
    ScheduleState.STOPPED: "error",
}


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, how it fares, and its times in words."""

    figures: ScheduleFigures
    level: str
    times: str


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules, those that need somebody first."""

    rows: tuple[ScheduleRow, ...]


async def show_schedules(visit: Visit) -> Page:
    """Show what is published by the clock."""
    found = await visit.operations.schedules()
    rows = [
        ScheduleRow(figures=one, level=_LEVELS[one.state], times=_times(one.schedule))
        for one in found
    ]
    rows.sort(key=lambda one: (one.level == "ok", one.figures.name))
    return Page(template="schedules.html", title="Schedules", model=Schedules(rows=tuple(rows)))


async def pause_schedule(visit: Visit) -> Moved:
    """Publish none of its ticks until it is resumed."""
    await visit.operations.pause_schedule(visit.name, by=visit.by, why=visit.why)
    return Moved("/schedules", f"{visit.name} is paused.")


async def resume_schedule(visit: Visit) -> Moved:
    """Publish its ticks from now on."""
    await visit.operations.resume_schedule(visit.name, by=visit.by, why=visit.why)
    return Moved("/schedules", f"{visit.name} goes on.")


async def run_schedule(visit: Visit) -> Moved:
    """Have a worker publish its event now, beside its ticks."""
    is_new = await visit.operations.run_schedule(visit.name, by=visit.by, why=visit.why)
    said = (
        "A worker publishes" if is_new else "Somebody has asked for it already: a worker publishes"
    )
    return Moved("/schedules", f"{said} an event of {visit.name} within some seconds.")


def _times(schedule: Schedule) -> str:
    if schedule.every is not None:
        return f"every {spell_duration(schedule.every)}"
    return f"{schedule.cron}, {schedule.timezone}"
