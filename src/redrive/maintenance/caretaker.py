"""The caretaker: does every duty again and again, in the name of one worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

from redrive.clock import Clock, wait_at_most
from redrive.errors import StoreError
from redrive.executor import Executor
from redrive.maintenance.duties import (
    MOST_AT_ONCE,
    DutyStore,
    catch_up,
    expire,
    rescue,
    shed,
)
from redrive.maintenance.examiner import Examiner
from redrive.maintenance.keeping import Housekeeper
from redrive.maintenance.replays import advance_replays, start_scheduled
from redrive.model.delivery import Kind
from redrive.observer import Observer
from redrive.transport import Endpoint

__all__ = ["Caretaker"]

_LONGEST_REST_SECONDS = 1.0
_MOST_STRETCHES = 20
_RESTS_PER_LEASE = 3
_LAST_ROUND_SECONDS = 5.0

T = TypeVar("T")


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
        endpoints: Sequence[Endpoint],
        clock: Clock,
        executor: Executor,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
        housekeeper: Housekeeper | None = None,
    ) -> None:
        self.examiner = Examiner(
            store=store,
            endpoints=endpoints,
            clock=clock,
            executor=executor,
            observer=observer,
            on_store_lost=on_store_lost,
        )
        self._store = store
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._housekeeper = housekeeper
        self._hearing = lease.total_seconds() / _RESTS_PER_LEASE
        self._rest = min(_LONGEST_REST_SECONDS, self._hearing)
        self._looked_at = clock.now()
        # A newcomer knows nothing of an outage that has just ended.
        self._steady_since = clock.monotonic()
        self._nudged = asyncio.Event()
        self._replaying = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._follows_replays = False
        self._next_step = math.inf
        self.sent = 0
        """How many deliveries it has made due since it began, of replays and of late events."""

    def hold_back(self) -> None:
        """Rescue nothing until the store has been within reach for a while. For any thread."""
        self._steady_since = math.inf

    def trust_the_clock(self) -> None:
        """Rescue from the first round on: who works but a moment cannot listen for a while."""
        self._steady_since = -math.inf

    def heed(self, settled: Iterable[Kind]) -> None:
        """Hear of deliveries that were settled: a replay may wait for them to go on."""
        if self._follows_replays or Kind.REPLAY in settled:
            self._nudged.set()

    async def run(self) -> None:
        """Do the duties until cancelled; a round that has begun is finished."""
        while True:
            await self._rest_between(await _to_its_end(self._do_duties()))

    async def _rest_between(self, rest: float) -> None:
        """Rest until the next round, but for replays that can go on."""
        end = self._clock.monotonic() + rest
        while (left := end - self._clock.monotonic()) > 0:
            wait = min(left, max(0.0, self._next_step - self._clock.monotonic()))
            if not await wait_at_most(self._nudged, wait, self._clock) and wait == left:
                return
            await _to_its_end(self.look_after_replays())

    async def look_after_replays(self) -> None:
        """Begin the replays that are due, and take every step there is to take now."""
        async with self._replaying:
            self._nudged.clear()
            self._follows_replays, self._next_step = False, math.inf
            try:
                await start_scheduled(self._store, self._observer)
                sent, advance = await advance_replays(self._store, self._observer)
            except StoreError as error:
                self._on_store_lost(error)
                return
            self.sent += sent
            self._follows_replays = advance.running > 0
            if advance.next_at is not None:
                wait = (advance.next_at - advance.now).total_seconds()
                self._next_step = self._clock.monotonic() + wait

    async def attend(self) -> bool:
        """Do at once what else would wait for the next round; tells whether anything changed.

        Only the caretaker knows of a replay whose wave is settled that it has more to send.
        """
        sent = self.sent
        try:
            given_up = await self._shed_all()
            has_more = await self._catch_up()
        except StoreError as error:
            self._on_store_lost(error)
            return False
        await self.look_after_replays()
        has_changed = await self.examiner.check_once() or given_up > 0 or has_more
        return has_changed or self.sent > sent

    async def _catch_up(self) -> bool:
        """Complete late events, and tell whether there may be more of them."""
        async with self._catching_up:
            caught_up = await catch_up(self._store, self._observer)
        self.sent += caught_up.added
        return caught_up.has_more

    async def _shed_all(self) -> int:
        given_up = last = await shed(self._store, self._observer)
        while last >= MOST_AT_ONCE:
            last = await shed(self._store, self._observer)
            given_up += last
        return given_up

    async def _do_duties(self) -> float:
        """Do each duty once, and return how long to rest."""
        rest = self._rest
        try:
            while await expire(self._store, self._observer) >= MOST_AT_ONCE:
                pass
            await self._shed_all()
            if self._is_steady():
                while await self._rescue() >= MOST_AT_ONCE:
                    pass
            for _ in range(_MOST_STRETCHES):
                if not await self._catch_up():
                    break
            if self._housekeeper is not None:
                rest = min(rest, await self._housekeeper.tidy())
        except StoreError as error:
            self._on_store_lost(error)
        else:
            await self.look_after_replays()
        return rest

    async def _rescue(self) -> int:
        return await rescue(self._store, self._observer, rescuer=self._worker, lease=self._lease)

    def _is_steady(self) -> bool:
        """Tell whether owners of leases had the time to be heard since anything went wrong."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        gap, self._looked_at = (now - self._looked_at).total_seconds(), now
        since = elapsed if gap > self._rest + self._hearing else min(self._steady_since, elapsed)
        self._steady_since = since
        return elapsed - since >= self._hearing


async def _to_its_end(duty: Coroutine[None, None, T]) -> T:
    begun = asyncio.ensure_future(duty)
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        # What the store has done must be told, or no hook would ever hear of it.
        await asyncio.wait([begun], timeout=_LAST_ROUND_SECONDS)
        begun.cancel()
        raise
