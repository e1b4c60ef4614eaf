"""Planted bugs of what is due later: events, and replays by auto-replays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.model.destination import Destination
from redrive.model.replay import AutoReplay
from redrive.policies.auto_replay import is_due
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

    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        before = dict(self._auto_replays_since)
        started = await super().start_auto_replays(due=due)
        self._auto_replays_since |= before
        return started


class StartedAtAShutGate(MemoryStore):
    def _is_free(self, destination: Destination) -> bool:
        return True


class NeverEnough(MemoryStore):
    """What an auto-replay has sent is not counted, so the hopeless are sent for good."""

    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        for row in self._rows.values():
            row.auto_replays = 0
        return super()._neglected(destination, auto_replay, now=now)


class BatchIgnored(MemoryStore):
    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        whole = msgspec.structs.replace(auto_replay, batch=10_000)
        return super()._neglected(destination, whole, now=now)


class AutoReplayNeverDue(MemoryStore):
    """Each look counts as the last run, so that no due time ever lies behind it."""

    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        self._auto_replays_since = dict.fromkeys(self._auto_replays_since, self._clock.now())
        return await super().start_auto_replays(due=due)


def _a_minute_early(auto_replay: AutoReplay, since: datetime, now: datetime) -> bool:
    return is_due(auto_replay, since, now + _LONGEST / 2)


BUGS: tuple[Bug, ...] = (
    Bug("far due time cut short", FarTimeCutShort),
    Bug("a due time starts many replays", StartedByEverybody),
    Bug("auto-replay starts at a shut gate", StartedAtAShutGate),
    Bug("cycles of an auto-replay not counted", NeverEnough),
    Bug("batch of an auto-replay ignored", BatchIgnored),
    Bug("auto-replay never due", AutoReplayNeverDue),
    Bug("auto-replay due early", patches=((replays, "is_due", _a_minute_early),)),
)
