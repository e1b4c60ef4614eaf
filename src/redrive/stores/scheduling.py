"""How a schedule stands after what was done to it, wherever that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.audit import Actor
from redrive.model.event import Receipt
from redrive.model.gate import Pause
from redrive.model.schedule import ScheduleRun, ScheduleStanding
from redrive.store import AppendResult, Conflict, Later, Ticked

__all__ = ["is_still", "paused", "resumed", "run", "ticked_on"]


def is_still(standing: ScheduleStanding | None, ticked: Ticked) -> bool:
    """Tell whether a schedule is where it was when somebody decided about its ticks."""
    return (
        standing is not None
        and standing.since == ticked.since
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
