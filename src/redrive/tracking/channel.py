"""A channel: the way to one destination past the store, by itself and at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from redrive.clock import Clock
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.outcome import Faulted, Nature, Outcome
from redrive.policies.capture import capture, timed_out
from redrive.policies.classify import classify
from redrive.tracking.item import Flight
from redrive.tracking.slices import Slices
from redrive.transport import Endpoint, checked_outcomes

__all__ = ["Channel", "Try"]

_MOST_AT_ONCE = 16
_ENDING_SECONDS = 1.0
_NO_LEASE = Lease(DeliveryId(0), 0)


class Try:
    """A try that has ended: what was sent, what came of it, and how long that took."""

    __slots__ = ("flight", "leased", "outcome", "took")

    def __init__(self, flight: Flight, leased: Leased, outcome: Outcome, took: float) -> None:
        self.flight = flight
        self.leased = leased
        self.outcome = outcome
        self.took = took


class Channel:
    """Sends what it is given in batches, several at once; tells of tries, and of what it gave up.

    When a batch takes longer than a fan-out may, all that waits behind it is given up: it was not
    tried.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        limit: timedelta,
        now: Callable[[], datetime],
        generation: Callable[[str], int],
        on_tried: Callable[[Sequence[Try]], None],
        on_given_up: Callable[[str, Sequence[Flight]], None],
        on_hung: Callable[[str, float], None],
        slices: Slices,
    ) -> None:
        self.endpoint = endpoint
        self.name = endpoint.destination.name
        self._clock = clock
        self._limit = min(limit, endpoint.terms.timeout)
        self._now = now
        self._generation = generation
        self._on_tried = on_tried
        self._on_given_up = on_given_up
        self._on_hung = on_hung
        self._slices = slices
        self._waiting: deque[Flight] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._active = 0
        try:
            self._batch = max(1, int(endpoint.transport.batch))
        except Exception:  # noqa: BLE001 - somebody else's code; the send says what is wrong
            self._batch = 1
        self._most = min(_MOST_AT_ONCE, endpoint.terms.concurrency or _MOST_AT_ONCE)

    def put(self, flight: Flight) -> None:
        """Take an event; it is sent as soon as the loop is free."""
        self._waiting.append(flight)
        if self._active < self._most and len(self._waiting) > self._active * self._batch:
            self._active += 1
            task = asyncio.create_task(self._run(), name=f"redrive-tracking-{self.name}")
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End what is under way; all that has not ended is told of by then."""
        self._give_back(self._taken_back())
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ENDING_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    async def _run(self) -> None:
        try:
            while self._waiting:
                size = min(self._batch, len(self._waiting))
                await self._send([self._waiting.popleft() for _ in range(size)])
        finally:  # at once: what is put next must find a task that still looks
            self._active -= 1

    async def _send(self, flights: list[Flight]) -> None:
        begun, now = self._clock.monotonic(), self._now()
        deliveries = [self._leased(one, now) for one in flights]
        limit = asyncio.timeout(self._limit.total_seconds())
        outcomes: Sequence[Outcome]
        try:
            async with limit:
                outcomes = checked_outcomes(
                    await self.endpoint.transport.send(deliveries), len(deliveries)
                )
        except TimeoutError as error:
            if limit.expired():
                self._on_hung(self.name, self._limit.total_seconds())
                fault = timed_out(self._limit)
                outcomes = [Faulted(fault=fault, nature=Nature.TRANSIENT)] * len(flights)
                self._on_given_up(self.name, ())  # from now on nothing is put here
            else:
                outcomes = self._raised(error, len(flights))
        except asyncio.CancelledError:
            spent = timedelta(seconds=self._clock.monotonic() - begun)
            if spent < self._limit / 2:
                self._on_given_up(self.name, flights)
            else:  # at the end of a process: who has not answered for so long has failed
                self._on_hung(self.name, spent.total_seconds())
                fault = timed_out(spent)
                outcomes = [Faulted(fault=fault, nature=Nature.TRANSIENT)] * len(flights)
                self._on_tried(_tries(flights, deliveries, outcomes, spent.total_seconds()))
            raise
        except Exception as error:  # noqa: BLE001 - whatever a transport raises is an outcome
            outcomes = self._raised(error, len(flights))
        took = self._clock.monotonic() - begun
        await self._slices.each(_tries(flights, deliveries, outcomes, took), self._on_tried)
        if limit.expired():
            await self._slices.each(self._taken_back(), self._give_back)

    def _raised(self, error: BaseException, count: int) -> list[Outcome]:
        terms = self.endpoint.terms
        verdict = classify(error, terminal=terms.terminal, transient=terms.transient)
        rule = "transport raised" if verdict.rule == "default" else verdict.rule
        outcome = Faulted(
            fault=capture(error, rule=rule), nature=verdict.nature, retry_after=verdict.retry_after
        )
        return [outcome] * count

    def _taken_back(self) -> list[Flight]:
        """Return what waits here, which waits here no more."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def _give_back(self, flights: Sequence[Flight]) -> None:
        self._on_given_up(self.name, flights)

    def _leased(self, flight: Flight, now: datetime) -> Leased:
        event = flight.event
        return Leased(
            lease=_NO_LEASE,
            destination=self.name,
            event=event,
            attempt=1,
            kind=Kind.FIRST,
            claimed_at=now,
            enqueued_at=event.published_at,
            breaker_generation=self._generation(self.name),
            deadline=self.endpoint.destination.deadline_of(event, now=now),
        )


def _tries(
    flights: Sequence[Flight],
    deliveries: Sequence[Leased],
    outcomes: Sequence[Outcome],
    took: float,
) -> list[Try]:
    return [
        Try(flight, leased, outcome, took / len(flights))
        for flight, leased, outcome in zip(flights, deliveries, outcomes, strict=True)
    ]
