"""The caretaker: does every duty again and again, in the name of one worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import TypeVar

from redrive.clock import Clock, wait_at_most
from redrive.errors import StoreError
from redrive.executor import Executor
from redrive.model.delivery import Kind
from redrive.observer import Observer
from redrive.transport import Endpoint
from redrive.worker.maintenance.duties import (
    DutyStore,
    all_there_is,
    catch_up,
    expire,
    rescue,
    shed,
)
from redrive.worker.maintenance.examiner import Examiner
from redrive.worker.maintenance.housekeeper import Housekeeper
from redrive.worker.maintenance.replays import advance_replays, start_auto_replays

__all__ = ["Caretaker"]

_LONGEST_REST_SECONDS = 1.0
_MOST_STRETCHES = 20
_RESTS_PER_LEASE = 3
_ROUNDS_MISSED = 2
"""Replays follow each round, and go on without one that does not come to its end."""
_MOST_FAILURES = 10
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
        serving: Callable[[], Mapping[str, Endpoint]],
        clock: Clock,
        executor: Executor,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
        housekeeper: Housekeeper | None = None,
        publish_due: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.examiner = Examiner(
            store=store,
            serving=serving,
            clock=clock,
            executor=executor,
            observer=observer,
            on_store_lost=self._lose_store,
        )
        self._store = store
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._housekeeper = housekeeper
        self._publish_due = publish_due
        self._hearing = lease.total_seconds() / _RESTS_PER_LEASE
        self._rest = min(_LONGEST_REST_SECONDS, self._hearing)
        self._looked_at, self._looked = clock.now(), clock.monotonic()
        # A newcomer knows nothing of an outage that ended just before its first round.
        self._steady_since = math.inf
        self._nudged = asyncio.Event()
        self._replaying = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._follows_replays = False
        self._next_step = math.inf
        self._has_failed = False
        self._failures = 0
        self.sent = 0
        """How many deliveries it has made due since it began, of replays and of late events."""
        self.given_up = 0
        """How many it has failed since it began: past their deadline, or unable to wait."""

    def hold_back(self) -> None:
        """Rescue nothing until the store has been within reach for a while. For any thread."""
        self._steady_since = math.inf

    def trust_the_clock(self) -> None:
        """Rescue from the first round on: a worker that runs for a moment has no time to listen."""
        self._steady_since = -math.inf

    def heed(self, settled: Iterable[Kind]) -> None:
        """Hear of deliveries that were settled: a replay may wait for them to go on."""
        if self._follows_replays or Kind.REPLAY in settled:
            self._nudged.set()

    async def run(self) -> None:
        """Do the duties until cancelled; what has begun comes to its end.

        The chores run side by side: a connection that falls silent in one keeps none of the others.
        """
        begun = (self._make_rounds(), self._follow_replays(), self._keep_house())
        chores = [asyncio.ensure_future(one) for one in begun]
        try:
            await asyncio.wait(chores, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # In this order, as a task group would not: a simulation must find it the same again.
            for chore in chores:
                chore.cancel()
            ends = await asyncio.gather(*chores, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _make_rounds(self) -> None:
        while True:
            await _to_its_end(self._make_round())
            self._nudged.set()
            await self._clock.sleep(self._rest)

    async def _follow_replays(self) -> None:
        while True:
            await _to_its_end(self.look_after_replays())
            wait = max(0.0, self._next_step - self._clock.monotonic())
            await wait_at_most(self._nudged, min(wait, _ROUNDS_MISSED * self._rest), self._clock)

    async def _keep_house(self) -> None:
        while self._housekeeper is not None:
            await self._clock.sleep(await _to_its_end(self._tidy(self._housekeeper)))

    async def look_after_replays(self) -> None:
        """Begin the replays that are due, and take every step there is to take now."""
        async with self._replaying:
            self._nudged.clear()
            self._follows_replays, self._next_step = False, math.inf
            try:
                await start_auto_replays(self._store, self._observer)
                sent, advance = await advance_replays(self._store, self._observer)
            except StoreError as error:
                self._lose_store(error)
                return
            self.sent += sent
            self._follows_replays = advance.running > 0
            if advance.next_at is not None:
                wait = (advance.next_at - advance.now).total_seconds()
                self._next_step = self._clock.monotonic() + wait

    async def attend(self) -> bool:
        """Do at once what else would wait for the next round; tells whether anything changed.

        Only the caretaker knows of a replay whose wave is settled that it has more to send. A duty
        that failed may have been the one needed, so it counts as a change, but only a few times in
        a row: a caller that waits until nothing changes must not wait for ever.
        """
        sent, self._has_failed = self.sent, False
        has_changed = await self._attend()
        self._failures = self._failures + 1 if self._has_failed else 0
        return has_changed or self.sent > sent or 0 < self._failures < _MOST_FAILURES

    async def _attend(self) -> bool:
        try:
            given_up = await self._give_up_all()
            has_more = await self._catch_up()
        except StoreError as error:
            self._lose_store(error)
            return False
        await self.look_after_replays()
        has_ticked = self._publish_due is not None and await self._publish_due()
        return await self.examiner.check_once() or given_up > 0 or has_more or has_ticked

    async def _catch_up(self) -> bool:
        """Complete late events, and tell whether there may be more of them."""
        async with self._catching_up:
            caught_up = await catch_up(self._store, self._observer)
        self._watch_the_time()
        self.sent += caught_up.added
        return caught_up.has_more

    async def _give_up_all(self) -> int:
        """Fail what is past its deadline or must not wait; returns how many."""
        expired = await self._all_there_is(self._expire)
        return expired + await self._all_there_is(self._shed)

    async def _all_there_is(self, duty: Callable[[], Awaitable[int]]) -> int:
        async def once() -> int:
            found = await duty()
            self._watch_the_time()
            return found

        return await all_there_is(once)

    async def _expire(self) -> int:
        return self._count(await expire(self._store, self._observer))

    async def _shed(self) -> int:
        return self._count(await shed(self._store, self._observer))

    def _count(self, given_up: int) -> int:
        self.given_up += given_up
        return given_up

    async def _make_round(self) -> None:
        """Do each duty that nobody may wait long for."""
        try:
            await self._give_up_all()
            if self._is_steady():
                await self._all_there_is(self._rescue)
            for _ in range(_MOST_STRETCHES):
                if not await self._catch_up():
                    break
        except StoreError as error:
            self._on_store_lost(error)

    def _lose_store(self, error: StoreError) -> None:
        self._has_failed = True
        self._on_store_lost(error)

    async def _tidy(self, housekeeper: Housekeeper) -> float:
        """Do the housekeeping there is to do now, and return how long to rest."""
        try:
            return await housekeeper.tidy()
        except StoreError as error:
            self._on_store_lost(error)
            # Losing the store holds rescue back for a while; rest until that is over.
            return self._rest + 2 * self._hearing

    async def _rescue(self) -> int:
        return await rescue(self._store, self._observer, rescuer=self._worker, lease=self._lease)

    def _is_steady(self) -> bool:
        """Tell whether owners of leases had the time to be heard since anything went wrong."""
        return self._watch_the_time() - self._steady_since >= self._hearing

    def _watch_the_time(self) -> float:
        """Look for a gap since the last look, during which nobody here could do anything.

        After each call of the store: a round may be long, and nothing is wrong with that.
        """
        now, elapsed = self._clock.now(), self._clock.monotonic()
        # A machine that sleeps may stop the one clock, and the other one may be set back meanwhile.
        gap = max((now - self._looked_at).total_seconds(), elapsed - self._looked)
        self._looked_at, self._looked = now, elapsed
        since = elapsed if gap > self._rest + self._hearing else min(self._steady_since, elapsed)
        self._steady_since = since
        return elapsed


async def _to_its_end(duty: Coroutine[None, None, T]) -> T:
    begun = asyncio.ensure_future(duty)
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        # What the store has done must be told, or no hook would ever hear of it.
        await asyncio.wait([begun], timeout=_LAST_ROUND_SECONDS)
        begun.cancel()
        raise
