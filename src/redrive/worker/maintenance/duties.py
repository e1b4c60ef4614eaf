"""The duties that keep the queue honest, one function each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from redrive.model.settlement import Failed, FailureReason
from redrive.observer import DeadLettered, EventsCompleted, Observer, Rescued
from redrive.policies.recovery import deadline_passed, is_in_doubt, not_to_wait, recover
from redrive.store import CaughtUp, DeliveryQueue, Gates, Inspection, Registry, Replays, Rescue

__all__ = ["DutyStore", "all_there_is", "catch_up", "expire", "rescue", "shed"]

_MOST_AT_ONCE = 200


class DutyStore(DeliveryQueue, Gates, Inspection, Registry, Replays, Protocol):
    """What the duties need of a store."""


async def all_there_is(duty: Callable[[], Awaitable[int]]) -> int:
    """Do a duty until it finds less than it does at once; returns how many it found in all."""
    done = last = await duty()
    while last >= _MOST_AT_ONCE:
        last = await duty()
        done += last
    return done


async def rescue(store: DutyStore, observer: Observer, *, rescuer: str, lease: timedelta) -> int:
    """Take back deliveries from workers that are gone; returns how many.

    The rescuer's own were lost while it was paused: it has not crashed, whatever its last
    heartbeat says. What belongs to a worker that was heard of within a `lease` waits.
    """
    found = [
        msgspec.structs.replace(one, owner_is_alive=True) if one.worker == rescuer else one
        for one in await store.overdue(limit=_MOST_AT_ONCE)
    ]
    overdue = [one for one in found if not is_in_doubt(one, lease=lease)]
    if not overdue:
        return 0
    decided = [(one, recover(one, now=one.now)) for one in overdue]
    refused = frozenset(
        await store.rescue([Rescue(one.lease, recovery) for one, recovery in decided])
    )
    for one, recovery in decided:
        if one.lease in refused:
            continue
        observer.notice(Rescued(overdue=one, recovery=recovery))
        if isinstance(recovery, Failed):
            delivery = await store.find_delivery(one.lease.delivery_id)
            if delivery is not None:
                observer.notice(DeadLettered.of(delivery, recovery.reason, recovery.fault))
    return len(decided) - len(refused)


async def expire(store: DutyStore, observer: Observer) -> int:
    """Fail what is past its deadline; returns how many."""
    expired = await store.expire(blame=deadline_passed, limit=_MOST_AT_ONCE)
    for delivery in expired:
        if delivery.fault is not None:
            observer.notice(DeadLettered.of(delivery, FailureReason.EXPIRED, delivery.fault))
    return len(expired)


async def catch_up(store: DutyStore, observer: Observer) -> CaughtUp:
    """Complete events that were published by older routes than there were."""
    caught_up = await store.catch_up()
    if caught_up.added:
        observer.notice(EventsCompleted(deliveries=caught_up.added))
    return caught_up


async def shed(store: DutyStore, observer: Observer) -> int:
    """Fail what must not wait for its gate; returns how many."""
    given_up = await store.shed(blame=not_to_wait, limit=_MOST_AT_ONCE)
    for delivery in given_up:
        if delivery.fault is not None and delivery.reason is not None:
            observer.notice(DeadLettered.of(delivery, delivery.reason, delivery.fault))
    return len(given_up)
