"""Planted bugs of what is due later: events, and replays by schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.model.destination import Destination
from redrive.model.replay import AutoReplay
from redrive.policies.schedule import is_due
from redrive.store import Due, Replay
from redrive.stores.deduplicate import Kept
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from redrive.worker.maintenance import replays
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

_LONGEST = timedelta(seconds=60)


class FarTimeCutShort(MemoryStore):
    """A due time further ahead than a timer can hold, as it was in more than one queue."""

    def _insert(self, kept: Kept, *, now: datetime) -> None:
        due = kept.event.due
        if due is not None and due > now + _LONGEST:
            cut = msgspec.structs.replace(kept.event, due=now + _LONGEST)
            kept = msgspec.structs.replace(kept, event=cut)
        super()._insert(kept, now=now)


class StartedByEverybody(MemoryStore):
    """A due time is not crossed off, so whoever looks next starts a replay for it as well."""

    async def start_scheduled(self, *, due: Due) -> Sequence[Replay]:
        before = dict(self._schedules)
        started = await super().start_scheduled(due=due)
        self._schedules |= before
        return started


class StartedAtAShutGate(MemoryStore):
    def _is_free(self, destination: Destination) -> bool:
        return True


class NeverEnough(MemoryStore):
    """What a schedule has sent is not counted, so the hopeless are sent for good."""

    def _neglected(self, destination: str, schedule: AutoReplay, *, now: datetime) -> list[Row]:
        for row in self._rows.values():
            row.auto_replays = 0
        return super()._neglected(destination, schedule, now=now)


class BatchIgnored(MemoryStore):
    def _neglected(self, destination: str, schedule: AutoReplay, *, now: datetime) -> list[Row]:
        whole = msgspec.structs.replace(schedule, batch=10_000)
        return super()._neglected(destination, whole, now=now)


class ScheduleNeverDue(MemoryStore):
    """Each look counts as the last run, so that no due time ever lies behind it."""

    async def start_scheduled(self, *, due: Due) -> Sequence[Replay]:
        self._schedules = dict.fromkeys(self._schedules, self._clock.now())
        return await super().start_scheduled(due=due)


def _a_minute_early(schedule: AutoReplay, since: datetime, now: datetime) -> bool:
    return is_due(schedule, since, now + _LONGEST / 2)


BUGS: tuple[Bug, ...] = (
    Bug("far due time cut short", FarTimeCutShort),
    Bug("a due time starts many replays", StartedByEverybody),
    Bug("schedule starts at a shut gate", StartedAtAShutGate),
    Bug("cycles of a schedule not counted", NeverEnough),
    Bug("batch of a schedule ignored", BatchIgnored),
    Bug("schedule never due", ScheduleNeverDue),
    Bug("schedule due early", patches=((replays, "is_due", _a_minute_early),)),
)
