"""The keeper: hands over what is left of events: to the store, or to the journal if it is down."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from redrive.errors import JournalError, SecretError, StoreError
from redrive.executor import Executor
from redrive.journal.line import EventRecord, Record, TriedRecord
from redrive.journal.writer import JournalWriter
from redrive.model.delivery import Kind
from redrive.model.outcome import Fault
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt, Snoozed
from redrive.pipeline.settle import Decision, Settler
from redrive.policies.fingerprint import grouped
from redrive.store import Rest, Settled, Store, Tried
from redrive.tracking.buffer import Spilled
from redrive.tracking.channel import Try
from redrive.tracking.figures import End
from redrive.tracking.item import Flight, Item
from redrive.tracking.outlook import Outlook
from redrive.tracking.slices import MOST_HANDED_OVER, Slices

__all__ = ["Keeper", "Part"]

_log = logging.getLogger("redrive.tracking")
_MOST_SUCCESSES = 100
_PATIENCE_SECONDS = 5.0
_LAST_SECONDS = 2.0


class Part:
    """A part of an event that is to be kept: where, and what was decided about its try."""

    __slots__ = ("decision", "destination", "fault", "flight", "reason")

    def __init__(
        self,
        flight: Flight,
        destination: str,
        *,
        decision: Decision | None = None,
        reason: FailureReason | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.flight = flight
        self.destination = destination
        self.decision = decision
        self.reason = reason
        self.fault = fault


Spilling = Callable[[], Awaitable[None]]
"""Writes events into the journal that were never routed."""


class Keeper:
    """Hands over in the order it is given, as many at once as there are.

    While this process has something in its journal, whatever must keep an order goes there too, so
    that it does not overtake.
    """

    def __init__(
        self,
        *,
        outlook: Outlook,
        journal: JournalWriter,
        spilled: Spilled,
        executor: Executor,
        make_settler: Callable[[Store], Settler],
        on_kept: Callable[[Flight, str, End, str], None],
        slices: Slices,
    ) -> None:
        self._outlook = outlook
        self._journal = journal
        self._spilled = spilled
        self._executor = executor
        self._make_settler = make_settler
        self._settler: Settler | None = None
        self._on_kept = on_kept
        self._slices = slices
        self._waiting: deque[Part | Spilling] = deque()
        self._arrivals: list[Tried] = []
        self._successes: dict[str, list[Try]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._answered = asyncio.Event()
        self.lock = asyncio.Lock()
        """Whoever holds it keeps anything from being handed over."""
        self._problem = ""

    def put(self, part: Part | Spilling) -> None:
        """Take a part that is to be kept, or what spills events; all in the order of the events."""
        self._waiting.append(part)
        self._answered.set()
        self._begin()

    def arrived(self, flight: Flight, destination: str) -> None:
        """Note where an event has arrived of which something is kept already."""
        self._arrivals.append(Tried(event=flight.event, arrived=(destination,)))
        self._answered.set()
        self._begin()

    def succeeded(self, one: Try) -> None:
        """Remember a success, to be told of with the next failure: by itself it writes nothing."""
        known = self._successes.setdefault(one.leased.destination, [])
        if len(known) < _MOST_SUCCESSES:
            known.append(one)

    def begin_ending(self) -> None:
        """Write by this thread from now on: no other can be had when the process ends."""
        self._is_ending = True

    async def finish(self) -> None:
        """Return when all that was given is handed over."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def spill(self, items: Sequence[Item]) -> str:
        """Write events into the journal that were never routed; returns why that failed, if so."""
        records: list[Record] = [
            EventRecord(event=one.event(), reason=one.reason, fault=one.fault) for one in items
        ]
        problem = await self._write(records)
        if not problem:
            self._spilled.note([one.number for one in items])
        return problem

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="redrive-tracking-keeper")

    async def _run(self) -> None:
        try:
            while self._waiting or self._arrivals:
                await self._slices.let_gather(self._waiting)
                await self._let_answer()
                parts = self._next_parts()
                if not parts and self._waiting:
                    spill = cast("Spilling", self._waiting.popleft())
                    async with self.lock:
                        await spill()
                    continue
                arrivals, self._arrivals = self._arrivals, []
                async with self.lock:
                    await self._keep(parts, arrivals)
                if self._waiting:
                    await self._slices.give_way()
        finally:
            self._task = None

    async def _let_answer(self) -> None:
        """At the end, wait a moment for who else was sent what waits, which saves a commit."""
        while self._slices.is_ending and len(self._waiting) < MOST_HANDED_OVER and self._is_split:
            self._answered.clear()
            if not await self._slices.let_answer(self._answered):
                return

    @property
    def _is_split(self) -> bool:
        """Whether an event that waits here is still on its way to somewhere else."""
        parts = [one for one in self._waiting if isinstance(one, Part)]
        here = Counter(one.flight.number for one in parts)
        return any(len(one.flight.open) > here[one.flight.number] for one in parts)

    def _next_parts(self) -> list[Part]:
        """Return the parts of the next events to be handed over, up to what is to be spilled.

        What is left of an event at several destinations is one row less to find if it is together.
        """
        parts: list[Part] = []
        events: set[int] = set()
        while self._waiting and isinstance(first := self._waiting[0], Part):
            if len(events) == MOST_HANDED_OVER and first.flight.number not in events:
                break
            events.add(first.flight.number)
            parts.append(first)
            self._waiting.popleft()
        return parts

    async def _keep(self, parts: list[Part], arrivals: list[Tried]) -> None:
        aside = [one for one in parts if self._overtakes(one)] if self._spilled else []
        direct = [one for one in parts if one not in aside] if aside else parts
        if direct or arrivals:
            if await self._to_store(direct, arrivals):
                for one in direct:
                    self._on_kept(one.flight, one.destination, End.STORED, "")
            else:
                # In the order in which they came: what is set aside may belong between them.
                aside = parts
        await self._to_journal(aside)

    def _overtakes(self, part: Part) -> bool:
        """Tell whether it would overtake something of its key that is still in the journal."""
        return (
            part.flight.number > self._spilled.first
            and part.flight.event.key is not None
            and self._outlook.is_ordered(part.destination)
        )

    async def _to_store(self, parts: list[Part], arrivals: list[Tried]) -> bool:
        if self._outlook.is_down:
            return False
        try:
            async with asyncio.timeout(_LAST_SECONDS if self._is_ending else _PATIENCE_SECONDS):
                store = await self._outlook.store()
                await self._report(store, parts)
                await store.take_over([*_tried(parts), *arrivals])
        except (StoreError, OSError, TimeoutError):
            self._outlook.lose()
            return False
        except SecretError:  # the store is there; the journal cannot take it either, and says why
            return False
        return True

    async def _report(self, store: Store, parts: list[Part]) -> None:
        """Tell the gates of failures, and of the successes before them; decide by the answer."""
        if not any(one.decision is not None for one in parts):
            return
        if self._settler is None:
            self._settler = self._make_settler(store)
        decided = [one for one in parts if one.decision is not None]
        decisions: list[Decision] = []
        for name in dict.fromkeys(one.destination for one in decided):
            decisions += [_success(one) for one in self._successes.pop(name, ())]
        before = len(decisions)
        decisions += [one.decision for one in decided if one.decision is not None]
        judged = await self._settler.report(decisions)
        for part, decision in zip(decided, judged[before:], strict=True):
            part.decision = decision

    async def _to_journal(self, parts: list[Part]) -> None:
        if not parts:
            return
        problem = await self._write([TriedRecord(tried=one) for one in _tried(parts)])
        if not problem:
            self._spilled.note([one.flight.number for one in parts])
        for one in parts:
            end, why = (End.DROPPED, "journal") if problem else (End.SPILLED, "")
            self._on_kept(one.flight, one.destination, end, why)

    async def _write(self, records: Sequence[Record]) -> str:
        try:
            if self._is_ending:  # no thread can be had any more when the process ends
                self._journal.append(records)
            else:
                await self._executor.submit(lambda: self._journal.append(records))
        except (JournalError, RuntimeError) as error:
            problem = str(error)
            if problem != self._problem:
                _log.error("%d tracked events are lost: %s", len(records), problem)
            self._problem = problem
            return problem
        self._problem = ""
        return ""


def _tried(parts: Sequence[Part]) -> list[Tried]:
    return [
        Tried(event=one.flight.event, arrived=tuple(one.flight.arrived), rest=(_rest(one),))
        for one in parts
    ]


def _rest(part: Part) -> Rest:
    if part.reason is not None and part.fault is not None:
        fault = grouped(part.fault, part.destination)
        return Rest(destination=part.destination, reason=part.reason, fault=fault)
    if part.decision is None:
        return Rest(destination=part.destination)
    settled = part.decision.settled
    tried = Rest(
        destination=part.destination,
        attempt=settled.attempt,
        exchange=settled.exchange,
        attempts=1,
    )
    match settled.settlement:
        case RetryAt(when=when, fault=fault, spends=spends):
            return _with(tried, due=when, kind=Kind.RETRY, fault=fault, attempts=int(spends))
        case Failed(reason=reason, fault=fault):
            return _with(tried, reason=reason, fault=fault)
        case Snoozed(until=until):
            return _with(tried, due=until, attempts=0, snoozes=1)
        case Delivered():
            raise AssertionError("what was delivered has no rest")


def _with(rest: Rest, **changes: object) -> Rest:
    return msgspec.structs.replace(rest, **changes)


def _success(one: Try) -> Decision:
    settled = Settled(lease=one.leased.lease, settlement=Delivered())
    return Decision(one.leased, settled, one.took, is_success=True)
