"""The sender: takes events out of the buffer, and sees each of them to its end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from redrive.clock import Clock, Rng, wait_at_most
from redrive.conditions.routing import recipients
from redrive.errors import StoreError
from redrive.executor import Executor
from redrive.journal.draining import drain_folder
from redrive.journal.folder import FILE_SUFFIX, expire
from redrive.journal.writer import JournalWriter
from redrive.model.destination import Order, Routes
from redrive.model.event import Event
from redrive.model.limits import Rate
from redrive.model.outcome import Applied, Fault, Succeeded
from redrive.model.settlement import FailureReason, RetryAt
from redrive.observer import Observer
from redrive.pipeline.settle import Decision, Settler
from redrive.policies.filter import OVER_RETRY_RATE, Saved, Saving
from redrive.policies.redact import Redaction
from redrive.store import Store
from redrive.tracking.admittance import Tokens
from redrive.tracking.buffer import Buffer
from redrive.tracking.channel import Channel, Try
from redrive.tracking.figures import End
from redrive.tracking.hung import shared
from redrive.tracking.item import Flight, Item
from redrive.tracking.keeper import Keeper, Part
from redrive.tracking.outlook import Outlook
from redrive.tracking.slices import Slices
from redrive.tracking.terms import Tracking
from redrive.transport import Closing, Endpoint

__all__ = ["Connection", "Sender"]

_log = logging.getLogger("redrive.tracking")
_WORKER = "tracking"
_LINGER_SECONDS = 0.02
_IDLE_SECONDS = 0.5
_DRAIN_SECONDS = 1.0
_EXPIRY_SECONDS = 3_600.0
_MOST_AT_ONCE = 200
_MOST_TO_SPILL = 10
"""How often what found no room may wait to be written; more is left where it is counted."""


class Connection(Protocol):
    """What connects the sender to an app: its store, and its own ways to destinations."""

    async def open_store(self) -> Store:
        """Return the store, open, with the app's destinations registered."""

    async def close_store(self) -> None:
        """Close it."""

    def endpoints(self) -> Mapping[str, Endpoint]:
        """Return the destinations to which this process has a way, each with a transport."""


class Sender:
    """Sends for one tracker, on one event loop."""

    def __init__(
        self,
        buffer: Buffer,
        connection: Connection,
        journal: JournalWriter,
        *,
        terms: Tracking,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        observer: Observer,
        redaction: Redaction,
        decide: Callable[[Saving], Saved],
    ) -> None:
        self._buffer = buffer
        self._connection = connection
        self._journal = journal
        self._terms = terms
        self._clock = clock
        self._decide = decide
        self._wake = asyncio.Event()
        self._hung = shared()
        self._slices = Slices(buffer, clock)
        self._outlook = Outlook(connection.open_store, clock)
        self._channels: dict[str, Channel] | None = None
        self._flights: dict[int, Flight] = {}
        self._settler: Settler | None = None
        self._spilling = 0
        self._progress = asyncio.Event()
        self._passed_over: set[str] = set()
        self._retries: dict[str, tuple[Rate, Tokens]] = {}

        def make_settler(store: Store) -> Settler:
            return Settler(
                store=store,
                worker=_WORKER,
                rng=rng,
                observer=observer,
                is_reported=self._outlook.has_breaker,
                redaction=redaction,
            )

        self._make_settler = make_settler
        self._keeper = Keeper(
            outlook=self._outlook,
            journal=journal,
            spilled=buffer.spilled,
            executor=executor,
            make_settler=make_settler,
            on_kept=self._close_part,
            slices=self._slices,
        )

    def wake(self) -> None:
        """Have it look into the buffer; on its own loop."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop, and then what is left, for as long as that may take."""
        loop = asyncio.get_running_loop()
        self._buffer.attach(lambda: loop.call_soon_threadsafe(self._wake.set))
        draining = asyncio.create_task(self._keep_draining(), name="redrive-tracking-drain")
        watching = asyncio.create_task(_set_with(stop, self._wake))
        quiet_since = self._clock.monotonic()
        try:
            while not stop.is_set():
                if await self._step():
                    quiet_since = self._clock.monotonic()
                if self._buffer.has_more and self._room() and self._may_spill:
                    await self._slices.give_way()
                elif self._buffer.has_more:
                    self._progress.clear()
                    await wait_at_most(self._progress, _LINGER_SECONDS, self._clock)
                elif self._clock.monotonic() - quiet_since < _IDLE_SECONDS and not (
                    self._buffer.is_awaited
                ):
                    await wait_at_most(self._wake, _LINGER_SECONDS, self._clock)
                    self._wake.clear()
                elif self._buffer.fall_asleep():
                    await self._wake.wait()
                    self._wake.clear()
            draining.cancel()
            await self._end()
        finally:
            self._buffer.detach()
            watching.cancel()
            draining.cancel()
            await asyncio.gather(watching, draining, return_exceptions=True)
            await self._close()

    async def run_until_idle(self) -> None:
        """Send all there is, wherever that ends, and let go of everything."""
        self._slices.end()
        try:
            while await self._step() or self._flights or self._spilling:
                if self._flights or self._spilling:
                    self._progress.clear()
                    if self._flights or self._spilling:
                        await self._progress.wait()
            await self._keeper.finish()
            await self._drain_once()
        finally:
            await self._close()

    async def _step(self) -> bool:
        """Take what the buffer has, and see it off; tells whether there was anything."""
        items, overflow = self._buffer.take(self._room(), with_overflow=self._may_spill)
        if overflow:
            self._spill_soon(overflow, "full")
        if items:
            await self._dispatch(items)
        return bool(items or overflow)

    @property
    def _may_spill(self) -> bool:
        return self._spilling < _MOST_TO_SPILL

    def _room(self) -> int:
        return max(0, min(self._slices.size, self._terms.capacity - len(self._flights)))

    def _spill_soon(self, items: list[Item], reason: str) -> None:
        """Write events into the journal, after what is older and before what is newer."""
        self._spilling += 1

        async def spill() -> None:
            try:
                await self._spill(items, reason)
            finally:
                self._spilling -= 1
                self._progress.set()

        self._keeper.put(spill)

    async def _spill(self, items: Sequence[Item], reason: str) -> None:
        """Write events into the journal that nobody has routed, if they are worth it.

        In parts, so that a disk that is nearly full takes what it has room for.
        """
        for first in range(0, len(items), _MOST_AT_ONCE):
            some = items[first : first + _MOST_AT_ONCE]
            kept = [one for one in some if self._saves(reason, one)]
            dropped = {id(one) for one in some} - {id(one) for one in kept}
            problem = await self._keeper.spill(kept) if kept else ""
            ends = [
                (one.number, End.DROPPED, "filtered")
                if id(one) in dropped
                else (one.number, End.DROPPED, "journal")
                if problem
                else (one.number, End.SPILLED, "")
                for one in some
            ]
            self._buffer.end(ends)

    async def _dispatch(self, items: list[Item]) -> None:
        routes = await self._outlook.routes()
        if routes is None:
            self._spill_soon(items, "held")
            return
        channels = self._channels_of(routes)
        flights: list[tuple[Flight, Item, tuple[str, ...]]] = []
        wanted: Counter[str] = Counter()
        for item in items:
            event = item.event()
            names = recipients(routes, event)
            if not names:
                self._buffer.end([(item.number, End.DROPPED, "unrouted")])
                continue
            flight = Flight(item.number, event, names)
            self._flights[item.number] = flight
            flights.append((flight, item, names))
            if event.to and (wrong := routes.misaddressed(event)) is not None:
                item.reason = FailureReason.TRACKING_FAILED
                item.fault = Fault(
                    error_class="MisaddressedError", message=str(wrong), rule="tracking"
                )
            if item.reason is None:
                wanted.update(name for name in names if name in channels)
        if wanted:
            await self._outlook.look(wanted)
        for flight, item, names in flights:
            for name in names:
                self._see_off(flight, item, name, channels.get(name))

    def _see_off(self, flight: Flight, item: Item, name: str, channel: Channel | None) -> None:
        if item.reason is not None:
            flight.is_kept = True
            part = Part(flight, name, reason=item.reason, fault=item.fault)
            self._keeper.put(part)
        elif channel is None:  # the store is the way there, not the way out
            self._hold(flight, name)
        elif not self._is_hung(name) and self._outlook.passes(name, flight.event):
            channel.put(flight)
        elif self._worth("held", flight, name):
            self._hold(flight, name)

    def _is_hung(self, name: str) -> bool:
        """Tell whether a process that lived for another job has waited for it in vain."""
        return self._hung is not None and self._hung.is_hung(
            self._journal.store, name, now=self._clock.monotonic()
        )

    def _on_hung(self, name: str, waited: float) -> None:
        if self._hung is not None:
            now = self._clock.monotonic()
            self._hung.note(self._journal.store, name, waited=waited, now=now)

    def _hold(self, flight: Flight, name: str) -> None:
        """Hand a part over that was not tried."""
        flight.is_kept = True
        self._buffer.reach(name, "held")
        self._keeper.put(Part(flight, name))

    def _on_given_up(self, name: str, flights: Sequence[Flight]) -> None:
        self._outlook.shut(name)
        for flight in flights:
            if self._worth("held", flight, name):
                self._hold(flight, name)

    def _on_tried(self, tries: Sequence[Try]) -> None:
        arrived = [one for one in tries if isinstance(one.outcome, Succeeded | Applied)]
        if arrived:  # counted before whoever waits for the last of them is told
            self._buffer.reach(arrived[0].leased.destination, "arrived", len(arrived))
        for one in tries:
            if isinstance(one.outcome, Succeeded | Applied):
                self._keeper.succeeded(one)
                self._arrive(one)
            else:
                self._fail(one)

    def _arrive(self, one: Try) -> None:
        flight, name = one.flight, one.leased.destination
        flight.arrived.append(name)
        if flight.is_kept:
            self._keeper.arrived(flight, name)
        self._close_part(flight, name, End.SENT, "")

    def _fail(self, one: Try) -> None:
        flight, name = one.flight, one.leased.destination
        if not self._worth("failed", flight, name):
            return
        settler, channels = self._settler, self._channels
        assert settler is not None  # noqa: S101 - a channel was made, and so was this
        assert channels is not None  # noqa: S101
        decision = settler.decide(
            one.leased,
            one.outcome,
            channels[name].endpoint.terms,
            waited=one.took,
            took=one.took,
        )
        if self._is_over_retry_rate(name, decision) and not self._worth(
            OVER_RETRY_RATE, flight, name
        ):
            return
        flight.is_kept = True
        self._buffer.reach(name, "failed")
        self._keeper.put(Part(flight, name, decision=decision))

    def _is_over_retry_rate(self, name: str, decision: Decision) -> bool:
        """Tell whether a retry is one more than its destination takes, if that matters."""
        if self._terms.over_retry_rate != "drop" or not isinstance(
            decision.settled.settlement, RetryAt
        ):
            return False
        rate, now = self._outlook.retry_rate(name), self._clock.monotonic()
        if rate is None:
            return False
        known = self._retries.get(name)
        if known is None or known[0] != rate:
            known = self._retries[name] = rate, Tokens(rate, now)
        return not known[1].take(now)

    def _worth(self, reason: str, flight: Flight, name: str) -> bool:
        """Tell whether a part is worth keeping; one that is not has ended."""
        event = flight.event
        if self._saves(reason, event):
            return True
        self._buffer.reach(name, "dropped")
        why = OVER_RETRY_RATE if reason == OVER_RETRY_RATE else "filtered"
        self._close_part(flight, name, End.DROPPED, why)
        return False

    def _saves(self, reason: str, one: Item | Event[msgspec.Raw]) -> bool:
        saved = self._decide(
            Saving(
                reason=reason, type=one.type, severity=one.severity, key=one.key, tenant=one.tenant
            )
        )
        if saved is Saved.DROP_TWICE:
            self._buffer.double()
        return saved is Saved.KEEP

    def _close_part(self, flight: Flight, name: str, end: End, why: str) -> None:
        """Count a part as ended, and with the last one the event."""
        flight.meet(end, why=why)
        flight.open.pop(name, None)
        if not flight.open and self._flights.pop(flight.number, None) is not None:
            self._buffer.end([(flight.number, flight.end, flight.why)], flight=flight)
            self._progress.set()

    def _channels_of(self, routes: Routes) -> dict[str, Channel]:
        """Return the ways past the store: to what keeps no order, and blocks no thread."""
        if self._channels is None:
            self._channels = {
                name: Channel(
                    endpoint,
                    clock=self._clock,
                    limit=self._terms.fan_out,
                    now=self._outlook.now,
                    generation=self._outlook.generation,
                    on_tried=self._on_tried,
                    on_given_up=self._on_given_up,
                    on_hung=self._on_hung,
                    slices=self._slices,
                )
                for name, endpoint in self._connection.endpoints().items()
                if not (endpoint.is_transactional or endpoint.is_threaded)
            }
        ordered = {
            one.name
            for one in routes.destinations
            if one.order is not Order.NONE or one.is_projection
        }
        if self._settler is None and self._outlook.open_store_now is not None:
            self._settler = self._make_settler(self._outlook.open_store_now)
        return {name: one for name, one in self._channels.items() if name not in ordered}

    async def _keep_draining(self) -> None:
        """Give the journal to the store whenever it answers: our files, and what others left."""
        expires_at = self._clock.monotonic()
        while True:
            with suppress(StoreError, OSError, TimeoutError):
                await self._drain_once()
            if self._clock.monotonic() >= expires_at:
                expire(self._journal.folder, self._journal.keep, clock=self._clock)
                expires_at += _EXPIRY_SECONDS
            await self._clock.sleep(_DRAIN_SECONDS)

    async def _drain_once(self) -> None:
        folder = self._journal.folder
        if self._outlook.is_down or not (self._buffer.spilled or _has_files(folder)):
            return
        if self._is_barred():
            return
        try:
            await self._drain(folder)
            if not self._buffer.spilled:
                return
            async with self._keeper.lock:  # what was added meanwhile, and then nothing is left
                if self._is_barred():
                    return
                await self._drain(folder)
                self._buffer.spilled.clear()
        except (StoreError, OSError, TimeoutError):
            self._outlook.lose()

    async def _drain(self, folder: Path) -> None:
        self._journal.let_go()
        done = await drain_folder(
            folder,
            await self._outlook.store(),
            name=self._journal.store,
            passed_over=self._passed_over,
            seal=self._journal.seal,
        )
        self._buffer.drain(done.records)
        for one in done.left:
            _log.error("A file of the journal is not drained: %s", one.why)
            self._passed_over.add(one.name)

    def _is_barred(self) -> bool:
        """Tell whether an older event than one in the journal is still on its way."""
        oldest, spilled = self._buffer.oldest, self._buffer.spilled
        return bool(spilled) and oldest is not None and oldest <= spilled.last

    async def _end(self) -> None:
        """Send what is left, and spill what takes too long."""
        self._slices.end()
        limit = self._terms.flush_limit.total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while await self._step() or self._flights or self._spilling:
                    if self._flights or self._spilling:
                        self._progress.clear()
                        if self._flights or self._spilling:
                            await self._progress.wait()
        self._keeper.begin_ending()
        for channel in (self._channels or {}).values():
            await channel.stop()
        await self._keeper.finish()
        for flight in list(self._flights.values()):  # a transport would not end
            for name in list(flight.open):
                self._hold(flight, name)
        await self._keeper.finish()
        items, overflow = self._buffer.take(self._terms.capacity)
        if rest := [*items, *overflow]:
            await self._spill(rest, "held")
        self._journal.let_go()

    async def _close(self) -> None:
        for channel in (self._channels or {}).values():
            transport = channel.endpoint.transport
            if isinstance(transport, Closing):
                with suppress(Exception):
                    await transport.close()
        await self._connection.close_store()


async def _set_with(first: asyncio.Event, second: asyncio.Event) -> None:
    await first.wait()
    second.set()


def _has_files(folder: Path) -> bool:
    return any(one.suffix == FILE_SUFFIX for one in folder.iterdir()) if folder.is_dir() else False
