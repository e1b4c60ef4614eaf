"""How schedules stand, for whoever looks at them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from redrive.model.event import EventId
from redrive.model.gate import Pause
from redrive.model.schedule import Schedule, ScheduleRun, ScheduleStanding
from redrive.policies.declaring import schedule_digest
from redrive.policies.redact import Redaction
from redrive.policies.schedule import ScheduleState, next_tick, state_of

__all__ = ["ScheduleFigures", "schedule_figures"]


class ScheduleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is in force, how it fares, and when it ticks next.

    `next_at` is when it ticks if a worker is there, and `None` while it is paused. `workers` counts
    the live ones that declare it, and `others` those of them that declare another than the one in
    force. `last_tick` and `last_event` are those of the last event published, `run` is
    what a person asked for and no worker has published yet.
    """

    schedule: Schedule
    state: ScheduleState
    next_at: datetime | None
    last_tick: datetime | None = None
    last_event: EventId | None = None
    pause: Pause | None = None
    run: ScheduleRun | None = None
    workers: int = 0
    others: int = 0

    @property
    def name(self) -> str:
        """The schedule's."""
        return self.schedule.name


def schedule_figures(
    standing: ScheduleStanding, *, alive: Collection[str], rule: Redaction, now: datetime
) -> ScheduleFigures:
    """Return how a schedule stands; `alive` are the names of the live workers."""
    live = [mark for worker, mark in standing.declared.items() if worker in alive]
    in_force = standing.in_force
    payload = rule.payload(msgspec.Raw(in_force.payload.encode()))
    return ScheduleFigures(
        schedule=msgspec.structs.replace(in_force, payload=bytes(payload).decode()),
        state=state_of(standing, now, is_declared=bool(live)),
        next_at=next_tick(in_force, standing.since) if standing.pause is None else None,
        last_tick=standing.last_tick,
        last_event=standing.last_event,
        pause=standing.pause,
        run=standing.run,
        workers=len(live),
        others=sum(mark != schedule_digest(in_force) for mark in live),
    )
