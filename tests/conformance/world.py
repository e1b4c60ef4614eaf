"""The world a conformance test plays in: a store, its clock, and short ways to arrange things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import TypeVar

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import Attempt, Delivery, DeliveryId, Lease, Leased
from redrive.model.destination import Destination, Order
from redrive.model.duration import Duration, duration
from redrive.model.event import DEFAULT_GENERATION, Event, EventId, Receipt
from redrive.model.outcome import Fault
from redrive.model.position import LOG_START, LogPosition
from redrive.model.settlement import Delivered, Failed, FailureReason, Requeued, RetryAt, Settlement
from redrive.store import (
    MOST_BYTES,
    Allowance,
    Appended,
    Claim,
    ClaimRequest,
    Declarer,
    DestinationFigures,
    Entry,
    Group,
    LoggedEvent,
    Query,
    Registered,
    Rescue,
    Settled,
    Store,
)
from redrive.testing.clock import FakeClock

__all__ = [
    "BILLING",
    "LEDGER",
    "MAILING",
    "OPERATOR",
    "MakeStore",
    "World",
    "a_fault",
    "an_attempt",
    "an_event",
    "an_id",
    "blame",
    "entries",
    "ids_of",
    "only",
]

T = TypeVar("T")
MakeStore = Callable[[FakeClock], Store]

BILLING = Destination(name="billing", patterns=("order.*",))
LEDGER = Destination(name="ledger", patterns=("order.*",), order=Order.PARK)
MAILING = Destination(name="mailing", patterns=("order.*", "mail.*"))
OPERATOR = Actor(by="ada", why="the customer called")

_PUBLISHED_AT = datetime.fromisoformat("2026-01-01T11:59:59.123456+00:00")
_PATIENCE_SECONDS = 20.0
_numbers = count(1)


def an_event(
    payload: object = None,
    *,
    type: str = "order.paid",  # noqa: A002 - the event's own word for it
    **fields: object,
) -> Event[msgspec.Raw]:
    """Return a new event; a payload of bytes is taken as the JSON itself."""
    raw = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    given = {
        "id": EventId(f"01940000-0000-7000-8000-{next(_numbers):012x}"),
        "published_at": _PUBLISHED_AT,
        "occurred_at": _PUBLISHED_AT,
        **fields,
    }
    return Event(type=type, payload=msgspec.Raw(raw), **given)  # type: ignore[arg-type]


def an_id(number: int) -> EventId:
    """Return an id of an event; they sort by their numbers."""
    return EventId(f"01930000-0000-7000-8000-{number:012x}")


def entries(*events: Event[msgspec.Raw], to: Sequence[str] = ("billing",)) -> list[Entry]:
    """Return the events with the destinations they are meant for."""
    return [Entry(event, tuple(to)) for event in events]


def a_fault(
    message: str = "it hurts", error_class: str = "ConnectionError", *, group: str = "hurts"
) -> Fault:
    """Return a failure as a transport would capture it, with the group of a dead letter."""
    return Fault(
        error_class=error_class,
        message=message,
        rule="default",
        code="503",
        stack="…",
        group=group,
        title=f"all that {group}" if group else "",
    )


def blame(destination: str) -> Fault:
    """Return what a delivery to this destination fails of when nobody has tried it."""
    return a_fault(f"{destination} never got it", "Hopeless", group=f"hopeless {destination}")


def an_attempt(leased: Leased, message: str = "it hurts") -> Attempt:
    """Return the record of a try that failed a quarter of a second after it was claimed."""
    return Attempt(
        number=leased.attempt,
        started_at=leased.claimed_at,
        ended_at=leased.claimed_at + timedelta(milliseconds=250),
        worker="worker-1",
        result="retry",
        fault=a_fault(message),
    )


def ids_of(claim: Claim) -> list[DeliveryId]:
    """Return which deliveries were leased, in the order of the claim."""
    return [leased.lease.delivery_id for leased in claim.deliveries]


def only(found: Sequence[T]) -> T:
    """Return the one that was found, if it was exactly one."""
    assert len(found) == 1
    return found[0]


class World:
    """A store on a clock of its own, with three destinations.

    `billing` and `mailing` know no order, `ledger` keeps the order of each key.
    """

    def __init__(self, store: Store, clock: FakeClock, make_store: MakeStore, history: int) -> None:
        self.store = store
        self.clock = clock
        self.make_store = make_store
        self.history = history

    @classmethod
    @asynccontextmanager
    async def opened(cls, make_store: MakeStore, *, history: int) -> AsyncIterator[World]:
        """Open a store with nothing in it, and close it at the end."""
        clock = FakeClock()
        world = cls(make_store(clock), clock, make_store, history)
        await world.store.open()
        try:
            yield world
        finally:
            await world.store.close()

    @asynccontextmanager
    async def another(self) -> AsyncIterator[World]:
        """Open a second store on the same data, beside the first."""
        store = self.make_store(self.clock)
        await store.open()
        try:
            yield World(store, self.clock, self.make_store, self.history)
        finally:
            await store.close()

    async def reopen(self) -> None:
        """Close the store, and open a new one on the same data."""
        await self.store.close()
        self.store = self.make_store(self.clock)
        await self.store.open()

    @property
    def now(self) -> datetime:
        """The present instant."""
        return self.clock.now()

    def after(self, span: Duration) -> datetime:
        """Return the instant that much later."""
        return self.now + duration(span)

    async def version(self) -> int:
        """Register the destinations, and return the version of the routes."""
        return (await self.store.register([BILLING, LEDGER, MAILING])).version

    async def declare(self, *destinations: Destination) -> Registered:
        """Bring declarations as a worker that stops again, so that they are in force."""
        by = Declarer(worker="declarer", host="tests")
        registered = await self.store.register(destinations, by=by)
        assert registered.others == ()
        await self.store.retire("declarer")
        return registered

    async def append(self, batch: Sequence[Entry], *, all_or_nothing: bool = False) -> Appended:
        """Append with the current routes."""
        result = await self.store.append(
            batch, routes_version=await self.version(), all_or_nothing=all_or_nothing
        )
        assert isinstance(result, Appended)
        return result

    async def receipts(
        self, batch: Sequence[Entry], *, all_or_nothing: bool = False
    ) -> list[Receipt]:
        """Append what nothing speaks against, and return the receipts."""
        results = (await self.append(batch, all_or_nothing=all_or_nothing)).results
        receipts = [one for one in results if isinstance(one, Receipt)]
        assert len(receipts) == len(batch)
        return receipts

    async def logged(self, count: int, *, after: LogPosition = LOG_START) -> Sequence[LoggedEvent]:
        """Return the events of the log behind a position, once so many can be read.

        In a store with many writers an event may have to wait for who began before it.
        """
        found = await self.read_events(after=after, limit=1000)
        if self.store.capabilities.is_shared_by_processes:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while len(found) < count:
                    found = await self.read_events(after=after, limit=1000)
        return found

    async def read_events(
        self, *, after: LogPosition = LOG_START, limit: int = 100
    ) -> tuple[LoggedEvent, ...]:
        """Return the events of the log behind a position that can be read by now."""
        return (await self.store.read_events(after=after, limit=limit)).events

    async def publish(
        self, *events: Event[msgspec.Raw], to: str = "billing"
    ) -> tuple[DeliveryId, ...]:
        """Append events for one destination, and return the ids of their deliveries."""
        await self.append(entries(*events, to=[to]))
        return tuple([(await self.find_one(event, to)).id for event in events])

    async def find_one(self, event: Event[msgspec.Raw], destination: str = "billing") -> Delivery:
        """Return the delivery of one event to one destination, whatever its status."""
        return only(await self.found(event_id=event.id, status=None, destination=destination))

    async def found(self, **query: object) -> tuple[Delivery, ...]:
        """Return what a query finds on its first page."""
        page = await self.store.find(Query(**query), limit=1000)  # type: ignore[arg-type]
        return page.deliveries

    async def show(self, delivery_id: DeliveryId) -> Delivery:
        """Return one delivery."""
        delivery = await self.store.find_delivery(delivery_id)
        assert delivery is not None
        return delivery

    async def claim(
        self,
        *destinations: str,
        total: int = 100,
        worker: str = "worker-1",
        generations: Sequence[str] = (DEFAULT_GENERATION,),
        lease: Duration = "30s",
        limit: int = 100_000,
        alone: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> Claim:
        """Claim with the same allowance for each destination, `billing` unless named."""
        return await self.store.claim(
            ClaimRequest(
                worker=worker,
                allowances=tuple(
                    Allowance(destination=one, total=total) for one in destinations or ("billing",)
                ),
                generations=tuple(generations),
                lease=duration(lease),
                limit=limit,
                alone=alone,
                most_bytes=most_bytes,
            )
        )

    async def claim_one(
        self, destination: str = "billing", *, worker: str = "worker-1", alone: bool = False
    ) -> Leased:
        """Claim exactly one delivery for 30 seconds."""
        claim = await self.claim(destination, total=1, worker=worker, alone=alone)
        return only(claim.deliveries)

    async def settle(
        self, leased: Leased, settlement: Settlement, attempt: Attempt | None = None
    ) -> list[Lease]:
        """Settle one delivery; the lease comes back if it was refused."""
        settled = Settled(lease=leased.lease, settlement=settlement, attempt=attempt)
        return list(await self.store.settle([settled]))

    async def retry(self, leased: Leased, wait: Duration = "10s") -> list[Lease]:
        """Settle a try as failed, to be repeated."""
        settlement = RetryAt(when=self.after(wait), fault=a_fault())
        return await self.settle(leased, settlement, an_attempt(leased))

    async def fail(
        self,
        leased: Leased,
        reason: FailureReason = FailureReason.TERMINAL,
        fault: Fault | None = None,
    ) -> list[Lease]:
        """Settle a try as failed for good."""
        settlement = Failed(reason=reason, fault=fault or a_fault())
        return await self.settle(leased, settlement, an_attempt(leased))

    async def dead_letter(
        self,
        event: Event[msgspec.Raw] | None = None,
        *,
        to: str = "billing",
        reason: FailureReason = FailureReason.TERMINAL,
        fault: Fault | None = None,
    ) -> DeliveryId:
        """Publish an event and fail its delivery; nothing else may be due at its destination."""
        [delivery_id] = await self.publish(event or an_event(), to=to)
        leased = await self.claim_one(to)
        assert leased.lease.delivery_id == delivery_id
        assert not await self.fail(leased, reason, fault)
        return delivery_id

    async def crash(self, destination: str = "billing", *, alone: bool = False) -> Leased:
        """Claim one delivery, lose its worker, and have it rescued as crashed, due at once."""
        leased = await self.claim_one(destination, worker="doomed", alone=alone)
        self.clock.advance("30s")
        requeued = Requeued(when=self.now, crashes=leased.crashes + 1, last_crash_at=self.now)
        assert not await self.store.rescue([Rescue(leased.lease, requeued)])
        return leased

    async def suspect(
        self, event: Event[msgspec.Raw] | None = None, *, to: str = "billing"
    ) -> DeliveryId:
        """Publish an event whose delivery crashes two workers."""
        [delivery_id] = await self.publish(event or an_event(), to=to)
        for _ in range(2):
            crashed = await self.crash(to)
            assert crashed.lease.delivery_id == delivery_id
        return delivery_id

    async def cancel(self, ids: Sequence[DeliveryId]) -> Sequence[DeliveryId]:
        """Cancel deliveries in the name of the operator."""
        return await self.store.cancel(ids, blame=blame, actor=OPERATOR)

    async def expire(self, *, limit: int = 100) -> Sequence[Delivery]:
        """Fail what is past its deadline."""
        return await self.store.expire(blame=blame, limit=limit)

    async def groups(
        self, *, limit: int = 50, most_read: int | None = None, **query: object
    ) -> list[Group]:
        """Return the groups of what a query finds."""
        chosen = Query(**query)  # type: ignore[arg-type]
        return list(await self.store.groups(chosen, limit=limit, most_read=most_read))

    async def figures_of(self, destination: str = "billing") -> DestinationFigures:
        """Return the figures of one destination."""
        figures = await self.store.figures()
        return only([one for one in figures.destinations if one.name == destination])

    async def run_all(self, destination: str) -> list[DeliveryId]:
        """Deliver what may start there, one after the other, and return the order."""
        order = []
        while claimed := (await self.claim(destination, total=1)).deliveries:
            order.append(claimed[0].lease.delivery_id)
            await self.settle(claimed[0], Delivered())
        return order

    async def wakes(self, action: Callable[[], Awaitable[object]]) -> bool:
        """Tell whether `wait` returns soon after the action, long before its time is up."""
        await self.claim("mailing", total=0)
        waiting = asyncio.ensure_future(self.store.wait(at_most=timedelta(hours=1)))
        await self.settles(waiting, within="0s")
        await action()
        return await self.settles(waiting, within="1m", give_up=True)

    async def settles(
        self, task: asyncio.Future[None], *, within: Duration, give_up: bool = False
    ) -> bool:
        """Let time pass in small steps, and tell whether the task ended before it was up."""
        end = self.after(within)
        # A store with threads needs a moment of real time to notice that the clock went on.
        await asyncio.wait([task], timeout=0.01)
        while not task.done() and self.now < end:
            self.clock.advance(min(timedelta(seconds=1), end - self.now))
            await asyncio.wait([task], timeout=0.001)
        if task.done():
            task.result()
            return True
        if give_up:
            task.cancel()
            await asyncio.wait([task])
        return False
