"""What a store promises about schedules, whose ticks are published once, whoever does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.schedule import Schedule, ScheduleRun, ScheduleStanding
from redrive.store.log import Append, Declarer, Entry

__all__ = ["KnownSchedule", "Schedules", "Ticked", "Timetable"]


class KnownSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands, and whether deliveries of its last event run or wait."""

    standing: ScheduleStanding
    is_under_way: bool = False


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by their names, as they stand `now` by the store's clock."""

    now: datetime
    schedules: tuple[KnownSchedule, ...] = ()


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a schedule that had come to `since` by then.

    `stored` is the version of its document, if it has one. It has come to `until` afterwards. `run`
    is what a person had asked for and is done now, if that is what is published, and `last_tick`
    the latest tick that is, if any.
    """

    schedule: str
    since: datetime
    until: datetime
    stored: int = 0
    run: ScheduleRun | None = None
    last_tick: datetime | None = None


class Schedules(Protocol):
    """What is published by the clock: each tick once, whoever publishes it."""

    async def declare_schedules(self, schedules: Sequence[Schedule], *, by: Declarer) -> None:
        """Bring what a worker declares; `policies.declaring` says what becomes of each.

        One that is new or changes leaves an audit entry. A schedule counts from when it is first
        seen. A name that a stored schedule has is refused, and nothing is declared:
        `ConfigurationError`.
        """

    async def attend_schedules(self, names: Sequence[str], *, by: Declarer) -> None:
        """Note that a worker publishes the ticks of these stored schedules."""

    async def forget_schedule(self, name: str, *, actor: Actor) -> bool:
        """Take out a schedule that code has declared; tells whether there was one.

        A worker whose code still declares it brings it back.
        """

    async def timetable(self, names: Sequence[str] | None = None) -> Timetable:
        """Return these schedules, or all; those that there never were are left out."""

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        """Append the events and let the schedule come to where they lead, all or nothing.

        `None`, and nothing has happened, if it has moved on meanwhile, was paused, or is not in
        the store. Of those who decide about the same ticks at once, one succeeds. What is
        published because a person asked for it is published of a paused one too.
        """

    async def pause_schedule(self, name: str, *, actor: Actor) -> bool | None:
        """Publish no ticks until it is resumed; tells whether it was not paused before.

        `None` if there is no such schedule.
        """

    async def resume_schedule(self, name: str, *, actor: Actor) -> bool | None:
        """Publish ticks from now on; tells whether it was paused. `None` if there is none."""

    async def run_schedule(self, name: str, *, actor: Actor) -> bool | None:
        """Have a worker publish an event of it now; tells whether nobody had asked for it yet.

        `None` if there is no such schedule.
        """
