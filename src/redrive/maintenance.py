"""The duties that keep the queue honest, one function each, and the caretaker who does them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.model.settlement import Failed, FailureReason
from redrive.observer import DeadLettered, Observer, Rescued
from redrive.policies.recovery import recover
from redrive.store import DeliveryQueue, Inspection, Rescue

__all__ = ["Caretaker", "expire", "rescue"]

_LONGEST_REST_SECONDS = 1.0
_RESTS_PER_LEASE = 3


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
        self._steady_since = -math.inf

    def hold_back(self) -> None:
        """Rescue nothing until the store has been within reach for a while."""
        self._steady_since = math.inf

    async def run(self) -> None:
        """Do the duties until cancelled."""
        rest = min(_LONGEST_REST_SECONDS, self._hearing)
        while True:
            begun = self._clock.now()
            try:
                await self._do_all()
            except StoreError as error:
                self._on_store_lost(error)
            await self._clock.sleep(rest)
            if (self._clock.now() - begun).total_seconds() > rest + self._hearing:
                self._steady_since = self._clock.monotonic()

    async def _do_all(self) -> None:
        await expire(self._store, self._observer)
        now = self._clock.monotonic()
        self._steady_since = min(self._steady_since, now)
        if now - self._steady_since >= self._hearing:
            await rescue(self._store, self._observer, rescuer=self._worker)


async def rescue(store: _Queue, observer: Observer, *, rescuer: str) -> int:
    """Take back deliveries from workers that are gone; returns how many.

    The rescuer's own were lost while it was paused: it has not crashed, whatever its last
    heartbeat says.
    """
    overdue = [
        msgspec.structs.replace(one, owner_is_alive=True) if one.worker == rescuer else one
        for one in await store.overdue()
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
    expired = await store.expire()
    for delivery in expired:
        if delivery.fault is not None:
            observer.notice(DeadLettered.of(delivery, FailureReason.EXPIRED, delivery.fault))
    return len(expired)
