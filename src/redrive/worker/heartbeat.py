"""The heartbeat: tells the store that a worker lives, from outside the handlers' event loop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from redrive.clock import Clock, wait_at_most
from redrive.errors import StoreError
from redrive.model.delivery import Lease
from redrive.observer import LeasesLost, Observer, WorkerWedged
from redrive.pipeline.deliver import Carrier, Load
from redrive.store import Serving, Store

__all__ = ["Heartbeat"]

_BEATS_PER_LEASE = 4
_TICKS_PER_LEASE = 6
_LONGEST_TICK_SECONDS = 1.0
_TICKS_MISSED = 3
_TELLS_AGAIN_SECONDS = 3600.0


class Heartbeat:
    """Extends the leases of what runs, and notices when the handlers' loop stands still.

    `noted_at` tells when the store last took note of the worker for another reason. A worker that
    holds no lease and was noted has nothing to add.
    """

    def __init__(
        self,
        *,
        worker: str,
        open_store: Callable[[], Awaitable[Store]],
        carrier: Carrier,
        serving: Callable[[], Serving],
        lease: timedelta,
        clock: Clock,
        observer: Observer,
        on_missed: Callable[[], None],
        on_wedged: Callable[[], None],
        noted_at: Callable[[], float] = lambda: -math.inf,
    ) -> None:
        self._worker = worker
        self._open_store = open_store
        self._carrier = carrier
        self._serving = serving
        self._lease = lease
        self._clock = clock
        self._observer = observer
        self._on_missed = on_missed
        self._on_wedged = on_wedged
        self._noted_at = noted_at
        self._told: Serving | None = None
        self._told_at: tuple[datetime, float] | None = None
        self._last_tick = clock.monotonic()
        self._beat_every = lease.total_seconds() / _BEATS_PER_LEASE
        self._ticks_every = min(_LONGEST_TICK_SECONDS, lease.total_seconds() / _TICKS_PER_LEASE)

    async def tick(self) -> None:
        """Note that the handlers' loop runs, again and again; called on that loop."""
        while True:
            self._last_tick = self._clock.monotonic()
            await self._clock.sleep(self._ticks_every)

    async def run(self, stopped: asyncio.Event) -> None:
        """Beat until stopped."""
        beat = self._beat_every
        store: Store | None = None
        try:
            while not stopped.is_set():
                await self._check_loop(stopped)
                try:
                    store = store or await self._open_store()
                    await self._beat(store)
                except StoreError:
                    # The worker looks for itself and reports it; here it only matters to go on.
                    self._on_missed()
                    await wait_at_most(stopped, beat / 4, self._clock)
                    continue
                except Exception:
                    # Without a heartbeat every delivery here would be blamed for a crash.
                    logging.getLogger("redrive").exception("A heartbeat failed; it goes on.")
                await wait_at_most(stopped, beat, self._clock)
        finally:
            if store is not None:
                await store.close()

    async def linger(self, stopped: asyncio.Event) -> None:
        """Hold on to what the worker could not end, while it runs; then give it back.

        The worker has left and says nothing more of itself: whatever ends this process now has
        not crashed it.
        """
        left = self._carrier.left()
        store: Store | None = None
        try:
            while left and not stopped.is_set():
                pause = self._beat_every
                try:
                    store = store or await self._open_store()
                    await store.release(_leases(one for one in left if not one.is_on_its_way))
                    left = self._carrier.still_held(left)
                    await store.extend(_leases(left), lease=self._lease)
                except StoreError:
                    pause /= 4
                except Exception:
                    logging.getLogger("redrive").exception("A lease was not extended; it goes on.")
                await wait_at_most(stopped, pause, self._clock)
        finally:
            if store is not None:
                await store.close()

    async def _beat(self, store: Store) -> None:
        leases = self._carrier.leases()
        since_noted = self._clock.monotonic() - self._noted_at()
        serving = self._serving()
        tells = serving != self._told or self._is_to_tell()
        if not tells and not leases and since_noted < self._beat_every:
            return
        told_at = self._clock.now(), self._clock.monotonic()
        refused = await store.heartbeat(
            self._worker, leases, lease=self._lease, serving=serving if tells else None
        )
        if tells:
            self._told, self._told_at = serving, told_at
        # A lease settled between the list and the beat is not lost.
        held = frozenset(self._carrier.leases(with_effects=False)) if refused else frozenset()
        lost = tuple(lease for lease in refused if lease in held)
        if lost:
            self._observer.notice(LeasesLost(worker=self._worker, leases=lost))

    def _is_to_tell(self) -> bool:
        """Tell whether to say what the worker serves, which may be a lot.

        It is remembered, but not of one that was silent for long, as when its machine slept and
        one of the clocks with it.
        """
        if self._told_at is None:
            return True
        told_at, elapsed = self._told_at
        gap = max((self._clock.now() - told_at).total_seconds(), self._clock.monotonic() - elapsed)
        return gap >= _TELLS_AGAIN_SECONDS

    async def _check_loop(self, stopped: asyncio.Event) -> None:
        """End the process if a handler blocks its loop beyond all patience.

        A loop that has not ticked may have stood still with everything else here, as when the
        machine slept. One that is not blocked ticks soon after that, so it is given the time.
        """
        ticked, patience = self._last_tick, self._ticks_every * _TICKS_MISSED
        if self._clock.monotonic() - ticked < patience or self._carrier.wedged_by(ticked) is None:
            return
        await wait_at_most(stopped, patience, self._clock)
        load = self._carrier.wedged_by(ticked)
        if load is not None and self._last_tick == ticked and not stopped.is_set():
            self._observer.notice(
                WorkerWedged(
                    worker=self._worker,
                    destination=load.endpoint.destination.name,
                    deliveries=tuple(one.lease.delivery_id for one in load.deliveries),
                )
            )
            self._on_wedged()


def _leases(loads: Iterable[Load]) -> list[Lease]:
    return [one.lease for load in loads for one in load.deliveries]
