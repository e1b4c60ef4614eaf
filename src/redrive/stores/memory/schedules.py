"""Schedules, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from redrive.model.audit import REDRIVE, Actor
from redrive.model.delivery import Status
from redrive.model.schedule import Schedule, ScheduleStanding
from redrive.policies.declaring import brought_schedule, schedule_changed
from redrive.store import (
    Append,
    Appended,
    Declarer,
    Entry,
    KnownSchedule,
    Ticked,
    Timetable,
)
from redrive.stores.memory.log import MemoryEventLog
from redrive.stores.scheduling import (
    attended,
    is_still,
    paused,
    refuse_stored,
    resumed,
    run,
    ticked_on,
)

__all__ = ["MemorySchedules"]

_UNSETTLED = (Status.PENDING, Status.IN_FLIGHT)


class MemorySchedules(MemoryEventLog):
    """`Schedules` over the tables."""

    async def declare_schedules(self, schedules: Sequence[Schedule], *, by: Declarer) -> None:
        with self._lock:
            now = self._clock.now()
            others = self._others(by, now)
            for one in schedules:
                refuse_stored(self._schedules.get(one.name))
            for one in schedules:
                before = self._schedules.get(one.name)
                after = brought_schedule(
                    before, one, worker=by.worker, others=others, now=now, lease=by.lease
                )
                self._schedules[one.name] = after
                if detail := schedule_changed(before, after):
                    actor = Actor(REDRIVE, by.why)
                    self._note("declare", actor, now=now, count=1, detail=detail)

    async def attend_schedules(self, names: Sequence[str], *, by: Declarer) -> None:
        with self._lock:
            others = self._others(by, self._clock.now())
            for name in names:
                standing = self._schedules.get(name)
                after = standing and attended(standing, by.worker, others)
                if after:
                    self._schedules[name] = after

    async def forget_schedule(self, name: str, *, actor: Actor) -> bool:
        with self._lock:
            standing = self._schedules.get(name)
            if standing is None or standing.in_force.stored:
                return False
            del self._schedules[name]
            self._note("forget_schedule", actor, now=self._clock.now(), count=1, detail=name)
            return True

    def _others(self, by: Declarer, now: datetime) -> set[str]:
        """See a worker, and return the live ones beside it."""
        self._workers[by.worker] = now
        return {
            name
            for name, seen_at in self._workers.items()
            if name != by.worker and now - seen_at < by.lease
        }

    async def timetable(self, names: Sequence[str] | None = None) -> Timetable:
        with self._lock:
            unsettled = {row.event.id for row in self._rows.values() if row.status in _UNSETTLED}
            return Timetable(
                now=self._clock.now(),
                schedules=tuple(
                    KnownSchedule(standing=one, is_under_way=one.last_event in unsettled)
                    for name, one in sorted(self._schedules.items())
                    if names is None or name in names
                ),
            )

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        with self._lock:
            standing = self._schedules.get(ticked.schedule)
            if standing is None or not is_still(standing, ticked):
                return None
            appended: Append = Appended(())
            if entries:
                appended = self._append(
                    entries, routes_version=routes_version, all_or_nothing=False
                )
            if isinstance(appended, Appended):
                self._schedules[ticked.schedule] = ticked_on(standing, ticked, appended.results)
            return appended

    async def pause_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return self._act(name, actor, "pause_schedule", paused)

    async def resume_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return self._act(name, actor, "resume_schedule", resumed)

    async def run_schedule(self, name: str, *, actor: Actor) -> bool | None:
        return self._act(name, actor, "run_schedule", run)

    def _act(
        self,
        name: str,
        actor: Actor,
        action: str,
        act: Callable[[ScheduleStanding, Actor, datetime], ScheduleStanding | None],
    ) -> bool | None:
        with self._lock:
            standing, now = self._schedules.get(name), self._clock.now()
            if standing is None:
                return None
            after = act(standing, actor, now)
            if after is None:
                return False
            self._schedules[name] = after
            self._note(action, actor, now=now, count=1, detail=name)
            return True
