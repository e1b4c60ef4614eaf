"""Schedules: which ticks there are between two instants, and which of them are published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import assert_never

import msgspec
from cronsim import CronSim

from redrive.model.schedule import Missed, Overlap, Schedule, ScheduleStanding

__all__ = [
    "LATE",
    "MOST_AT_ONCE",
    "MOST_MISSED",
    "DueTicks",
    "ScheduleState",
    "due_ticks",
    "next_tick",
    "state_of",
]

LATE = timedelta(seconds=5)
"""A tick that nobody has published for so long is missed; until then it is only late."""

MOST_MISSED = 1_000
"""How many ticks are looked back for: of more, the oldest are left out."""

MOST_AT_ONCE = 100
"""How many ticks are published in one transaction."""

_LATE_FOR_PEOPLE = timedelta(seconds=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_STRETCH = timedelta(hours=1)


class ScheduleState(StrEnum):
    """How a schedule fares."""

    TICKING = "ticking"
    LATE = "late"
    """A tick has come, and no worker has published it for a while."""
    PAUSED = "paused"
    STOPPED = "stopped"
    """No live worker declares it."""


class DueTicks(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about the ticks that have come.

    `ticks` are published, in their order; all up to `until` are done with then. `missed` counts
    those that are late beyond measure, published or not, `left_out` those of them that are not
    published, and `overlapping` what is not because the last event is still under way. With
    `has_more` there were older ones, which nobody counts.
    """

    ticks: tuple[datetime, ...]
    until: datetime
    missed: int = 0
    left_out: int = 0
    overlapping: int = 0
    has_more: bool = False


def next_tick(schedule: Schedule, after: datetime) -> datetime:
    """Return the first tick behind an instant, in UTC.

    >>> berlin = Schedule(name="a", type="a", cron="30 2 * * *", timezone="Europe/Berlin")
    >>> next_tick(berlin, datetime(2026, 7, 1, tzinfo=UTC)).isoformat()
    '2026-07-01T00:30:00+00:00'
    >>> next_tick(Schedule(name="a", type="a", every=timedelta(minutes=5)), _EPOCH).isoformat()
    '1970-01-01T00:05:00+00:00'
    """
    return next(_ticks(schedule, after))


def due_ticks(
    schedule: Schedule, since: datetime, now: datetime, *, is_under_way: bool
) -> DueTicks | None:
    """Decide about the ticks since an instant; `None` if there are none.

    `is_under_way` says that deliveries of the last event run or wait.
    """
    ticks, has_more = _latest(schedule, since, now)
    if not ticks:
        return None
    missed = [one for one in ticks if one < now - LATE]
    in_time = ticks[len(missed) :]
    wanted = _wanted(schedule.missed, missed) + in_time
    chosen = (
        _apart(wanted, is_under_way=is_under_way) if schedule.overlap is Overlap.SKIP else wanted
    )
    batch = chosen[:MOST_AT_ONCE]
    until = batch[-1] if len(batch) < len(chosen) else ticks[-1]
    return DueTicks(
        ticks=tuple(batch),
        until=until,
        missed=sum(one <= until for one in missed),
        left_out=len(ticks) - len(wanted),
        overlapping=len(wanted) - len(chosen),
        has_more=has_more,
    )


def state_of(standing: ScheduleStanding, now: datetime, *, is_declared: bool) -> ScheduleState:
    """Say how a schedule fares; `is_declared` if a live worker declares it."""
    if standing.pause is not None:
        return ScheduleState.PAUSED
    if not is_declared:
        return ScheduleState.STOPPED
    is_late = next_tick(standing.in_force, standing.since) < now - _LATE_FOR_PEOPLE
    return ScheduleState.LATE if is_late else ScheduleState.TICKING


def _wanted(policy: Missed, missed: list[datetime]) -> list[datetime]:
    match policy:
        case Missed.SKIP:
            return []
        case Missed.ONCE:
            return missed[-1:]
        case Missed.ALL:
            return missed
        case never:
            assert_never(never)


def _apart(ticks: Sequence[datetime], *, is_under_way: bool) -> Sequence[datetime]:
    """Return what does not overlap: the last one, if nothing is under way."""
    return [] if is_under_way else ticks[-1:]


def _latest(schedule: Schedule, since: datetime, now: datetime) -> tuple[list[datetime], bool]:
    """Return the latest ticks up to now, in their order, and whether there were more of them."""
    stretch = _FIRST_STRETCH if schedule.every is None else MOST_MISSED * schedule.every
    while True:
        start = max(since, now - stretch)
        found = list(takewhile(lambda one: one <= now, _ticks(schedule, start)))
        if start == since or len(found) >= MOST_MISSED:
            return found[-MOST_MISSED:], start > since or len(found) > MOST_MISSED
        stretch *= 2


def _ticks(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    if schedule.every is not None:
        tick = _EPOCH + (after - _EPOCH) // schedule.every * schedule.every
        while True:
            tick += schedule.every
            yield tick
    # When clocks are set back, a fixed time of day comes once, and is found again behind it.
    for local in CronSim(schedule.cron or "", after.astimezone(schedule.zone)):
        tick = local.astimezone(UTC)
        if tick > after:
            yield tick
