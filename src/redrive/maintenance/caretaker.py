"""The caretaker: does every duty again and again, in the name of one worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta

from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.maintenance.duties import MOST_AT_ONCE, DutyStore, expire, rescue
from redrive.maintenance.keeping import Housekeeper
from redrive.observer import Observer

__all__ = ["Caretaker"]

_LONGEST_REST_SECONDS = 1.0
_RESTS_PER_LEASE = 3
_LAST_ROUND_SECONDS = 5.0


class Caretaker:
    """Does every duty again and again, in the name of one worker.

    Leases also run out while nobody can extend them: in an outage of the store, while the machine
    sleeps, when its clock is set forward. No worker has crashed then, so the caretaker first lets
    their owners be heard again.
    """

    def __init__(
        self,
        *,
        store: DutyStore,
        worker: str,
        lease: timedelta,
        clock: Clock,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
        housekeeper: Housekeeper | None = None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._housekeeper = housekeeper
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
            await self._clock.sleep(begun.result())

    async def _do_duties(self) -> float:
        """Do each duty once, and return how long to rest."""
        rest = self._rest
        try:
            while await expire(self._store, self._observer) >= MOST_AT_ONCE:
                pass
            if self._is_steady():
                while (
                    await rescue(self._store, self._observer, rescuer=self._worker) >= MOST_AT_ONCE
                ):
                    pass
            if self._housekeeper is not None:
                rest = min(rest, await self._housekeeper.tidy())
        except StoreError as error:
            self._on_store_lost(error)
        return rest

    def _is_steady(self) -> bool:
        """Tell whether owners of leases had the time to be heard since anything went wrong."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        gap, self._looked_at = (now - self._looked_at).total_seconds(), now
        since = elapsed if gap > self._rest + self._hearing else min(self._steady_since, elapsed)
        self._steady_since = since
        return elapsed - since >= self._hearing
