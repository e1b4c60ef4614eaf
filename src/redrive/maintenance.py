"""The duties that keep the queue honest, one function each, and the caretaker who does them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.model.settlement import Failed, FailureReason
from redrive.observer import DeadLettered, Observer, Rescued
from redrive.policies.recovery import deadline_passed, recover
from redrive.store import DeliveryQueue, Inspection, Rescue

__all__ = ["Caretaker", "expire", "rescue"]

_LONGEST_REST_SECONDS = 1.0
_RESTS_PER_LEASE = 3
_LAST_ROUND_SECONDS = 5.0
_MOST_AT_ONCE = 200


class _Queue(DeliveryQueue, Inspection, Protocol):
    """What the duties need of a store."""


class Caretaker:
    """Does every duty again and again, in the name of one worker.

    Leases also run out while nobody can extend them: in an outage of the store, while the machine
    sleeps, when its clock is set forward. No worker has crashed then, so the caretaker first lets
    their owners be heard again.
    """

    def __init__(
        self,
        *,
        store: _Queue,
        worker: str,
        lease: timedelta,
        clock: Clock,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._hearing = lease.total_seconds() / _RESTS_PER_LEASE
        self._rest = min(_LONGEST_REST_SECONDS, self._hearing)
        self._looked_at = clock.now()
        self._steady_since = -math.inf

    def hold_back(self) -> None:
        """Rescue nothing until the store has been within reach for a while. For any thread."""
        self._steady_since = math.inf

    async def run(self) -> None:
        """Do the duties until cancelled; a round that has begun is finished."""
        while True:
            begun = asyncio.ensure_future(self._do_duties())
            try:
                await asyncio.shield(begun)
            except asyncio.CancelledError:
                # What the store has failed for good must be told, or no hook would ever hear of it.
                await asyncio.wait([begun], timeout=_LAST_ROUND_SECONDS)
                begun.cancel()
                raise
            await self._clock.sleep(self._rest)

    async def _do_duties(self) -> None:
        try:
            while await expire(self._store, self._observer) >= _MOST_AT_ONCE:
                pass
            if self._is_steady():
                while (
                    await rescue(self._store, self._observer, rescuer=self._worker) >= _MOST_AT_ONCE
                ):
                    pass
        except StoreError as error:
            self._on_store_lost(error)

    def _is_steady(self) -> bool:
        """Tell whether owners of leases had the time to be heard since anything went wrong."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        gap, self._looked_at = (now - self._looked_at).total_seconds(), now
        since = elapsed if gap > self._rest + self._hearing else min(self._steady_since, elapsed)
        self._steady_since = since
        return elapsed - since >= self._hearing


async def rescue(store: _Queue, observer: Observer, *, rescuer: str) -> int:
    """Take back deliveries from workers that are gone; returns how many.

    The rescuer's own were lost while it was paused: it has not crashed, whatever its last
    heartbeat says.
    """
    overdue = [
        msgspec.structs.replace(one, owner_is_alive=True) if one.worker == rescuer else one
        for one in await store.overdue(limit=_MOST_AT_ONCE)
    ]
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


async def expire(store: _Queue, observer: Observer) -> int:
    """Fail what is past its deadline; returns how many."""
    expired = await store.expire(blame=deadline_passed, limit=_MOST_AT_ONCE)
    for delivery in expired:
        if delivery.fault is not None:
            observer.notice(DeadLettered.of(delivery, FailureReason.EXPIRED, delivery.fault))
    return len(expired)
