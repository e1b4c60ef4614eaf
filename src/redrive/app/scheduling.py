"""Declarations of schedules: what an app is told to publish by the clock."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.duration import Duration, duration
from redrive.model.schedule import Missed, Overlap, Schedule
from redrive.policies.payload import encode_payload
from redrive.worker import PlannedSchedule

__all__ = ["Compute", "ScheduleOptions", "computed_by", "declare_schedule"]

Compute = TypeVar("Compute", bound=Callable[[datetime], Any])
_LONGEST_EVERY = timedelta(days=366)


class ScheduleOptions(TypedDict, total=False):
    """What a schedule publishes, and what becomes of ticks that were missed or overlap."""

    name: str
    """What the schedule is called; the type of its events if left out."""
    payload: object
    """What the events carry, unless a function gives it."""
    key: str | None
    """What the events are about."""
    tenant: str | None
    """The customer the events belong to."""
    priority: int
    """From -100 to 100; among due deliveries of one tenant the higher goes first."""
    missed: Missed | Literal["skip", "once", "all"]
    """Of ticks that nobody published in time: publish none, the latest for all, or each."""
    overlap: Overlap | Literal["allow", "skip"]
    """`skip` leaves ticks out while deliveries of the last event run or wait."""


_KNOWN = ScheduleOptions.__annotations__.keys()


def declare_schedule(
    event_type: str | None,
    options: ScheduleOptions,
    *,
    cron: str | None,
    every: Duration | None,
    timezone: str,
) -> PlannedSchedule:
    """Return the schedule that these options describe."""
    refuse_unknown(options, _KNOWN, what="option of a schedule")
    if event_type is None:
        raise ConfigurationError(
            "A schedule needs the type of the events it publishes: "
            'app.schedule("*/5 * * * *", "report.due").'
        )
    given: dict[str, Any] = dict(options)
    payload = encode_payload(given.pop("payload", None)).decode()
    span = None if every is None else duration(every, name="every", longest=_LONGEST_EVERY)
    schedule = Schedule(
        name=given.pop("name", event_type),
        type=event_type,
        cron=cron,
        every=span,
        timezone=timezone,
        payload=payload,
        **given,
    )
    return PlannedSchedule(schedule)


def computed_by(planned: PlannedSchedule, function: Compute) -> PlannedSchedule:
    """Return the schedule with a function that gives the payload of each tick."""
    schedule = planned.schedule
    if schedule.payload != "null":
        raise ConfigurationError(
            f"The schedule {schedule.name!r} has a payload and a function that gives one; "
            "leave one of them out."
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise ConfigurationError(
            f"The function {name!r} of the schedule {schedule.name!r} takes the time of the tick "
            f"and returns the payload: write `def {name}(at: datetime)`."
        ) from None
    computed = msgspec.structs.replace(schedule, is_computed=True)
    return PlannedSchedule(computed, function)
