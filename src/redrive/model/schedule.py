"""Schedules: what is published by the clock, and what a store keeps of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.cron import check_cron
from redrive.model.event import EventId, NewEvent
from redrive.model.gate import Pause

__all__ = [
    "Missed",
    "Overlap",
    "Schedule",
    "ScheduleRun",
    "ScheduleStanding",
    "check_schedule_name",
]

_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 100
_SHORTEST = timedelta(seconds=1)


class Missed(StrEnum):
    """What becomes of ticks that nobody was there to publish."""

    SKIP = "skip"
    ONCE = "once"
    """The latest of them is published, for all."""
    ALL = "all"
    """Each is published, of very many the latest."""


class Overlap(StrEnum):
    """What becomes of a tick while deliveries of the last one are still under way."""

    ALLOW = "allow"
    SKIP = "skip"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is published, and when: at the times of a cron expression, or every so often.

    `cron` has five fields and is read in `timezone`. `every` counts from midnight of 1970-01-01
    UTC, so that an hour begins on the hour. `payload` is JSON; with `is_computed` a function of
    the worker's code gives it for each tick. `stored` is the version of the document that
    describes it, and 0 if code declares it.
    """

    name: str
    type: str
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    payload: str = "null"
    is_computed: bool = False
    key: str | None = None
    tenant: str | None = None
    priority: int = 0
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.ALLOW
    stored: int = 0

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        self._check_times()
        # An event says itself what is wrong with its type, its key, its tenant and its priority.
        NewEvent(type=self.type, key=self.key, tenant=self.tenant, priority=self.priority)
        _check_choice(self, "missed", Missed)
        _check_choice(self, "overlap", Overlap)
        if self.missed is Missed.ALL and self.overlap is Overlap.SKIP:
            raise ConfigurationError(
                f"The schedule {self.name!r} is to publish all missed ticks and to leave out those "
                'that overlap, and all of them would; choose missed="once" or overlap="allow".'
            )

    @property
    def zone(self) -> tzinfo:
        """The time zone that its cron expression is read in."""
        return UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)

    def has_times_of(self, other: Schedule) -> bool:
        """Tell whether it ticks at the same times as another."""
        return (self.cron, self.every, self.timezone) == (other.cron, other.every, other.timezone)

    def _check_times(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ConfigurationError(
                f"The schedule {self.name!r} needs a cron expression or every=, and not both: "
                '"*/5 * * * *", or every="5m".'
            )
        if self.cron is not None:
            check_cron(self.cron)
        if self.every is not None and self.every < _SHORTEST:
            raise ConfigurationError(
                f"every is {self.every.total_seconds():g}s; a schedule ticks at most once a second."
            )
        if self.every is not None and self.timezone != "UTC":
            raise ConfigurationError(
                f"The schedule {self.name!r} has a timezone and every=, which counts in UTC; "
                "write a cron expression for times of a day, or leave the timezone out."
            )
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise ConfigurationError(
                f"timezone is {self.timezone!r}, which is none that is known here; "
                'write a name such as "Europe/Berlin" or "UTC".'
            ) from None


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A person wants an event of a schedule now, whatever the time is."""

    by: str
    why: str
    at: datetime


class ScheduleStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a store keeps of a schedule.

    `in_force` is the declaration that all workers go by, `seen` are digests of those that were
    seen, the newest last, `declared` are digests of what workers declare or publish, by the names
    of the workers, and `returned_at` is when one that was seen before last came into force again.
    Ticks up to `since` were published or left out. `run` is what a person asked for, and no worker
    has published yet. `last_tick` and `last_event` are those of the last event published.
    """

    in_force: Schedule
    since: datetime
    seen: tuple[str, ...] = ()
    declared: dict[str, str] = {}
    returned_at: datetime | None = None
    pause: Pause | None = None
    run: ScheduleRun | None = None
    last_tick: datetime | None = None
    last_event: EventId | None = None

    @property
    def name(self) -> str:
        """The schedule's."""
        return self.in_force.name


def check_schedule_name(name: object) -> str:
    """Return the name, or say what is wrong with it."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not _NAME_LETTERS.issuperset(name)
    ):
        raise ConfigurationError(
            f"The schedule's name is {name!r}; use letters, digits, '.', '_' and '-', "
            'at most 100 characters, such as "nightly-report".'
        )
    return name


def _check_choice(schedule: Schedule, name: str, kind: type[StrEnum]) -> None:
    value = getattr(schedule, name)
    if value not in tuple(kind):
        raise ConfigurationError(f"{name} is {value!r}; it is one of {', '.join(kind)}.")
    msgspec.structs.force_setattr(schedule, name, kind(value))
