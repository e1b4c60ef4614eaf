"""How a schedule stands after what was done to it, wherever that is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.audit import Actor
from redrive.model.event import Receipt
from redrive.model.gate import Pause
from redrive.model.schedule import Schedule, ScheduleRun, ScheduleStanding
from redrive.policies.declaring import schedule_digest
from redrive.store import AppendResult, Conflict, Later, Ticked

__all__ = [
    "attended",
    "is_still",
    "paused",
    "put_schedule_in_force",
    "refuse_stored",
    "resumed",
    "run",
    "ticked_on",
]


def put_schedule_in_force(
    schedule: Schedule, before: ScheduleStanding | None, now: datetime
) -> ScheduleStanding:
    """Put a stored schedule in force, unless the name is one of a schedule of somebody's code."""
    if before is None:
        return ScheduleStanding(in_force=schedule, since=now)
    if not before.in_force.stored:
        raise ConfigurationError(
            f"The name {schedule.name!r} belongs to a schedule that an app declares in its code; "
            "give yours another name, or take it out of the code and delete it with `redrive "
            f"schedule delete {schedule.name}`."
        )
    since = before.since if schedule.has_times_of(before.in_force) else now
    return msgspec.structs.replace(before, in_force=schedule, since=since)


def refuse_stored(standing: ScheduleStanding | None) -> None:
    """Leave a name to the schedule that is stored under it."""
    if standing is not None and standing.in_force.stored:
        raise ConfigurationError(
            f"The name {standing.name!r} belongs to a schedule that is stored (version "
            f"{standing.in_force.stored}); give the schedule of your code another name, or delete "
            f"the stored one with `redrive schedule delete {standing.name}`."
        )


def attended(
    standing: ScheduleStanding, worker: str, others: Collection[str]
) -> ScheduleStanding | None:
    """Return a stored schedule with a worker that publishes it; `None` if it is none."""
    if not standing.in_force.stored:
        return None
    kept = {name: one for name, one in standing.declared.items() if name in others}
    mark = schedule_digest(standing.in_force)
    return msgspec.structs.replace(standing, declared=kept | {worker: mark})


def is_still(standing: ScheduleStanding | None, ticked: Ticked) -> bool:
    """Tell whether a schedule is where it was when somebody decided about its ticks."""
    return (
        standing is not None
        and standing.since == ticked.since
        and standing.in_force.stored == ticked.stored
        and (standing.pause is None if ticked.run is None else standing.run == ticked.run)
    )


def ticked_on(
    standing: ScheduleStanding, ticked: Ticked, results: Sequence[AppendResult | Later]
) -> ScheduleStanding:
    """Return it after events were published, or left out."""
    published = [one.event_id for one in results if isinstance(one, Receipt | Conflict)]
    return msgspec.structs.replace(
        standing,
        since=ticked.until,
        run=standing.run if ticked.run is None else None,
        last_tick=ticked.last_tick or standing.last_tick,
        last_event=published[-1] if published else standing.last_event,
    )


def paused(standing: ScheduleStanding, actor: Actor, now: datetime) -> ScheduleStanding | None:
    """Return it paused; `None` if it is already."""
    if standing.pause is not None:
        return None
    pause = Pause(by=actor.by, why=actor.why, at=now)
    return msgspec.structs.replace(standing, pause=pause)


def resumed(standing: ScheduleStanding, actor: Actor, now: datetime) -> ScheduleStanding | None:  # noqa: ARG001 - as the others
    """Return it going on; `None` if it was not paused. What it would have ticked is not missed."""
    if standing.pause is None:
        return None
    return msgspec.structs.replace(standing, pause=None, since=max(now, standing.since))


def run(standing: ScheduleStanding, actor: Actor, now: datetime) -> ScheduleStanding | None:
    """Return it with a request for an event; `None` if there is one already."""
    if standing.run is not None:
        return None
    return msgspec.structs.replace(standing, run=ScheduleRun(by=actor.by, why=actor.why, at=now))
