"""The canonical run: a small shop does everything once, on a store whose n-th call may fail."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from redrive import Event, NewEvent, Query, Redrive, Retry, StoreError, Terminal
from redrive.app.declaration import Ports
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Status
from redrive.store import Store
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import CountingIds, InlineExecutor, SeededRng
from tests.proof.grounds import MakeStore

__all__ = ["Clean", "Lot", "Tampering", "run_canonically"]

T = TypeVar("T")
_UNCOUNTED = ("open", "close", "wait", "check")
_MOST_TRIES = 200


class Tampering:
    """Counts the calls of a store, and makes one of them fail.

    Before it takes effect, as when the request was lost; or afterwards, as when the answer was.
    """

    def __init__(self, fails_at: int | None = None, *, is_applied: bool = False) -> None:
        self._fails_at = fails_at
        self._is_applied = is_applied
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.failed: str | None = None

    def around(self, store: Store) -> Store:
        return cast("Store", _Tampered(store, self))

    async def call(self, name: str, method: Callable[[], Awaitable[Any]]) -> object:
        with self._lock:
            self.calls.append(name)
            fails = len(self.calls) == self._fails_at
        if fails:
            self.failed = name
            if self._is_applied:
                await method()
            raise StoreUnavailableError("The store failed: this call was chosen to.")
        return await method()


class _Tampered:
    def __init__(self, store: Store, tampering: Tampering) -> None:
        self._store = store
        self._tampering = tampering

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._store, name)
        if name in _UNCOUNTED or not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: object, **kwargs: object) -> object:
            return await self._tampering.call(name, lambda: attribute(*args, **kwargs))

        return call


Clean = Tampering
"""Without a number, nothing fails."""


class Lot:
    """How a run ended: what the store holds, what was done, and what callers were told."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, int]] = Counter()
        self.complaints: list[str] = []
        self.ends: dict[tuple[str, int], str] = {}
        self.events = 0
        self.stray = 0
        self.audit: Counter[str] = Counter()


class _Shop:
    def __init__(self, make_store: Callable[[FakeClock], Store], lot: Lot) -> None:
        self.clock = FakeClock()
        self.lot = lot
        self.is_repaired = False
        self._ids = itertools.count(1)
        self.app = Redrive("memory://", lease="10m", poll="1s", grace="1s")
        self.wiring = self.app.rewired(
            Ports(
                clock=self.clock,
                ids=CountingIds(),
                rng=SeededRng(0),
                executor=InlineExecutor(),
                end_process=lambda: None,
            ),
            lambda: make_store(self.clock),
        )
        retry = Retry(max_attempts=3, base="10s", jitter="none")

        @self.app.handler("order.*", name="billing", retry=retry)
        async def bill(event: Event[int]) -> None:
            if event.payload == 2 and not self.lot.done["tried", 2]:
                self.lot.done["tried", 2] += 1
                raise ConnectionError("just once")
            if event.payload == 3 and not self.is_repaired:
                raise Terminal("not before it is repaired")
            self.lot.done["billing", event.payload] += 1

        @self.app.handler("order.*", name="ledger", order="park", retry=retry)
        async def write(event: Event[int]) -> None:
            self.lot.done["ledger", event.payload] += 1

    async def insist(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it until the store does not fail; each failure is one sentence."""
        for _ in range(_MOST_TRIES):
            try:
                return await self.let_time_pass(act())
            except StoreError as error:
                self.lot.complaints.append(str(error))
        raise AssertionError(f"It never went through: {self.lot.complaints[-1]}")

    async def let_time_pass(self, work: Coroutine[Any, Any, T]) -> T:
        """Advance the clock while the work waits for it."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait([task], timeout=0.002)
            if not task.done():
                self.clock.advance("100ms")
        return task.result()


async def run_canonically(make_store: MakeStore, tampering: Tampering) -> Lot:
    """Publish, fan out, retry, fail, delay, replay, cancel and resolve; then look at what is left.

    Whoever calls does what a careful caller does: what failed is done again.
    """
    lot = Lot()
    shop = _Shop(lambda clock: tampering.around(make_store(clock)), lot)
    app, insist = shop.app, shop.insist
    with shop.wiring:
        await insist(lambda: app.publish("order.paid", 1, key="a", idempotency_key="o1"))
        batch = [
            NewEvent(type="order.paid", payload=number, key="b", idempotency_key=f"o{number}")
            for number in (2, 3)
        ]
        await insist(lambda: app.publish_many(batch))
        later = NewEvent(type="order.paid", payload=4, idempotency_key="o4", due=shop.clock.now())
        await insist(lambda: app.publish_many([later]))
        await insist(lambda: app.publish("order.paid", 5, idempotency_key="o5", due="10h"))
        await insist(lambda: app.publish("parcel.sent", 6, idempotency_key="o6"))
        await _work(shop, rounds=4)
        shop.is_repaired = True
        await _replay(shop)
        await _cancel(shop)
        await _work(shop, rounds=3)
        await _look(shop, make_store)
        await app.close()
    return lot


async def _work(shop: _Shop, *, rounds: int) -> None:
    """Deliver what is due, for long enough that leases run out whose claim was never heard of."""
    for _ in range(rounds):
        await shop.insist(shop.app.drain)
        shop.clock.advance("11m")


async def _replay(shop: _Shop) -> None:
    """Replay the dead letter, which may have been done although the answer was lost."""
    operations = shop.app.operations
    letters = await shop.insist(lambda: operations.select(Query(destination="billing")))
    assert len(letters) == 1, "one dead letter"
    await shop.insist(lambda: operations.replay(letters, by="ada", why="repaired"))


async def _cancel(shop: _Shop) -> None:
    operations = shop.app.operations
    waiting = await shop.insist(
        lambda: operations.deliveries(Query(status=Status.PENDING, destination="ledger"))
    )
    late = [one.id for one in waiting.deliveries if one.due > shop.clock.now()]
    await shop.insist(lambda: operations.cancel(late, by="ada", why="not wanted"))
    failed = await shop.insist(lambda: operations.select(Query(destination="ledger")))
    await shop.insist(lambda: operations.resolve(failed, by="ada", why="told them"))


async def _look(shop: _Shop, make_store: MakeStore) -> None:
    store = make_store(shop.clock)
    await store.open()
    try:
        figures = await store.figures()
        numbers = {
            one.event.id: int(bytes(one.event.payload))
            for one in (await store.read_events(limit=100)).events
        }
        for status in Status:
            page = await store.find(Query(status=status, with_resolved=True), limit=100)
            for one in page.deliveries:
                place = one.destination, numbers[one.event_id]
                assert place not in shop.lot.ends, "two deliveries of one event to one destination"
                shop.lot.ends[place] = "resolved" if one.resolution else str(one.status)
        shop.lot.audit.update(entry.action for entry in await store.audit())
        shop.lot.events = figures.events
        shop.lot.stray = sum(one.in_flight for one in figures.destinations)
    finally:
        await store.close()
