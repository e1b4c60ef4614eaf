"""Schedules: when each ticks, stopping or running one, and those of the store."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from redrive.errors import NotFoundError, RedriveError
from redrive.model.duration import spell_duration
from redrive.model.schedule import Schedule
from redrive.operations import ScheduleFigures
from redrive.policies.schedule import ScheduleState
from redrive.web.pages.documents import read_document, text_of
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "ScheduleRow",
    "Schedules",
    "delete_schedule",
    "pause_schedule",
    "resume_schedule",
    "run_schedule",
    "save_schedule",
    "show_schedules",
]

_LEVELS = {
    ScheduleState.TICKING: "ok",
    ScheduleState.PAUSED: "warning",
    ScheduleState.LATE: "error",
    ScheduleState.STOPPED: "error",
}
_EXAMPLE = '{"event": "report.due", "cron": "0 2 * * *"}'


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, how it fares, and its times in words."""

    figures: ScheduleFigures
    level: str
    times: str

    @property
    def may_go(self) -> bool:
        """Whether it can be deleted: it is stored, or no code declares it any more."""
        return bool(self.figures.schedule.stored) or not self.figures.workers


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules, those that need somebody first; the rest is what stands in the form."""

    rows: tuple[ScheduleRow, ...]
    name: str = ""
    text: str = ""
    why: str = ""
    error: str = ""


async def show_schedules(visit: Visit) -> Page:
    """Show what is published by the clock; the form has the schedule that is to be changed."""
    name = visit.asked("change") or ""
    text = await _document(visit, name) if name and visit.may("save_schedule") else ""
    return await _page(visit, Schedules(rows=(), name=name if text else "", text=text or _EXAMPLE))


async def save_schedule(visit: Visit) -> Page | Moved:
    """Put a schedule in force as it stands in the form."""
    text = visit.form.get("schedule", "")
    try:
        document = read_document("schedule", text)
        saved = await visit.operations.save_schedule(
            visit.name, document, by=visit.by, why=visit.why
        )
    except RedriveError as error:
        typed = Schedules(rows=(), name=visit.name, text=text, why=visit.why, error=str(error))
        return await _page(visit, typed, HTTPStatus.BAD_REQUEST)
    return Moved("/schedules", f"Version {saved.version} of {visit.name} is in force.")


async def delete_schedule(visit: Visit) -> Moved:
    """Delete a schedule of the store, or one that no code declares any more."""
    await visit.operations.delete_schedule(visit.name, by=visit.by, why=visit.why)
    return Moved("/schedules", f"{visit.name} was deleted; what it has published stays.")


async def _document(visit: Visit, name: str) -> str:
    """Return what is stored of a schedule, as text; nothing if it is not."""
    try:
        [latest] = await visit.operations.past_versions("schedule", name, limit=1)
    except NotFoundError:
        return ""
    return text_of(latest.kept.document)


async def _page(visit: Visit, model: Schedules, status: HTTPStatus = HTTPStatus.OK) -> Page:
    found = await visit.operations.schedules()
    rows = [
        ScheduleRow(figures=one, level=_LEVELS[one.state], times=_times(one.schedule))
        for one in found
    ]
    rows.sort(key=lambda one: (one.level == "ok", one.figures.name))
    model = msgspec.structs.replace(model, rows=tuple(rows))
    return Page(template="schedules.html", title="Schedules", model=model, status=status)


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
