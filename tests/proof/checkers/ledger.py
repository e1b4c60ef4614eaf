"""The ledger: what must be true of every delivery, going by what the store has done so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from redrive.model.delivery import DeliveryId, Kind, Lease, Status
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId, Receipt
from redrive.model.gate import BreakerChange, BreakerState, Closed
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Snoozed
from redrive.store import Appended
from tests.proof.checkers.records import Call

__all__ = ["Entry", "Ledger", "Promise", "Step"]

_PAST = {"resolve": "resolved", "cancel": "cancelled"}
_HELD = {
    "settle": ("settled", "settle refused"),
    "release": ("released", "release refused"),
    "heartbeat": ("extended", "extend refused"),
    "rescue": ("rescued", "rescue refused"),
}


class Promise(NamedTuple):
    """A destination, and how often it is tried."""

    destination: Destination
    max_attempts: int


@dataclass(slots=True, kw_only=True)
class Entry:
    """One delivery. `spent` are its tries of this cycle that count."""

    id: DeliveryId
    event: Event[msgspec.Raw]
    destination: str
    due: datetime
    deadline: datetime | None
    generation: str
    payload: bytes
    status: Status = Status.PENDING
    kind: Kind = Kind.FIRST
    token: int = 0
    worker: str = ""
    lease_until: datetime | None = None
    is_alone: bool = False
    breaker_generation: int = 0
    spent: int = 0
    snoozes: int = 0
    crashes: int = 0
    cycle: int = 0
    is_resolved: bool = False
    removed: str = ""

    @property
    def tenant(self) -> str:
        return self.event.tenant or ""

    @property
    def is_dead_letter(self) -> bool:
        return self.status is Status.FAILED and not self.is_resolved and not self.removed

    def is_leased(self, now: datetime) -> bool:
        """Tell whether somebody holds it by a lease that has not run out."""
        return (
            self.status is Status.IN_FLIGHT
            and self.lease_until is not None
            and self.lease_until > now
        )

    def __str__(self) -> str:
        return f"delivery {self.id} to {self.destination}"


class Step(NamedTuple):
    """One thing the store did, mostly to one delivery; `how` is what it did with it.

    `detail` is what it was given for that: a `Leased`, a `Settlement`, a `Lease`, a `Recovery`.
    """

    how: str
    call: Call
    entry: Entry | None = None
    lease: Lease | None = None
    detail: Any = None


@dataclass(slots=True)
class Ledger:
    """Every delivery as it must be; `apply` follows what the store does, step by step."""

    promises: Mapping[str, Promise]
    entries: dict[DeliveryId, Entry] = field(default_factory=dict)
    events: dict[EventId, Event[msgspec.Raw]] = field(default_factory=dict)
    breakers: dict[str, BreakerState] = field(default_factory=dict)
    paused: dict[str, None] = field(default_factory=dict)
    paused_tenants: dict[tuple[str, str | None], None] = field(default_factory=dict)
    ended: dict[Lease, str] = field(default_factory=dict)
    lanes: dict[tuple[str, str], list[Entry]] = field(default_factory=dict)
    of_destination: dict[str, list[Entry]] = field(default_factory=dict)
    reopened: dict[str, None] = field(default_factory=dict)
    """Destinations whose gate was shut once: what waited there is counted in another way."""

    def order(self, entry: Entry) -> Order:
        return self.promises[entry.destination].destination.order

    def lane(self, entry: Entry) -> Sequence[Entry]:
        """Return the deliveries of the same key to an ordered destination, in publish order."""
        key = entry.event.key
        if key is None or self.order(entry) is Order.NONE:
            return ()
        return self.lanes[entry.destination, key]

    def ahead(self, entry: Entry) -> Entry | None:
        """Return what must go before this delivery, if anything must."""
        lane = self.lane(entry)
        flying = [one for one in lane if one.status is Status.IN_FLIGHT and one is not entry]
        if flying:
            return flying[0]
        skips = self.order(entry) is Order.SKIP
        for one in lane:
            if one is entry:
                return None
            if one.status is Status.PENDING or (one.is_dead_letter and not skips):
                return one
        return None

    def breaker(self, destination: str) -> BreakerState:
        return self.breakers.get(destination, Closed())

    def steps(self, call: Call) -> Iterator[Step]:
        """Return what a call did, one thing after the other; `apply` each before the next."""
        match call.method:
            case "append":
                yield from self._appended(call)
            case "claim":
                yield from _changed(call, call.answer.changes)
                for leased in call.answer.deliveries:
                    yield self._about("claimed", call, leased.lease, leased)
            case "settle" | "release" | "heartbeat" | "rescue" | "retire":
                yield Step(call.method, call)
                for how, lease, detail in _leases(call):
                    yield self._about(how, call, lease, detail)
            case "report":
                yield from _reported(call)
            case "open_breaker" | "reset_breaker":
                yield from _changed(call, (call.answer,))
            case "pause" | "resume" | "pause_tenant" | "resume_tenant":
                yield from _turned(call)
            case _:
                for how, number, detail in _acts(call):
                    yield Step(how, call, self.entries.get(number), None, detail)

    def apply(self, step: Step) -> None:
        """Follow one step."""
        entry, now = step.entry, step.call.now
        match step.how:
            case "stored":
                self._store(step)
            case "changed":
                change: BreakerChange = step.detail
                self.breakers[change.destination] = change.after
                if isinstance(change.after, Closed):
                    self.reopened[change.destination] = None
            case "paused":
                self.paused[step.detail] = None
            case "resumed":
                self.paused.pop(step.detail, None)
                self.reopened[step.detail] = None
            case "tenant paused":
                self.paused_tenants[step.detail] = None
            case "tenant resumed":
                self.paused_tenants.pop(step.detail, None)
            case _ if entry is not None:
                self._change(step, entry, now)
            case _:
                pass

    def _appended(self, call: Call) -> Iterator[Step]:
        if not isinstance(call.answer, Appended):
            return
        made: dict[EventId, list[Any]] = {}
        for one in call.made:
            made.setdefault(one.event_id, []).append(one)
        for entry, result in zip(call.given["entries"], call.answer.results, strict=True):
            event = entry.event
            is_new = isinstance(result, Receipt) and result.event_id == event.id
            if is_new and event.id not in self.events:
                yield Step("stored", call, detail=(event, made.get(event.id, [])))

    def _about(self, how: str, call: Call, lease: Lease, detail: object) -> Step:
        return Step(how, call, self.entries.get(lease.delivery_id), lease, detail)

    def _store(self, step: Step) -> None:
        event, made = step.detail
        self.events[event.id] = event
        for one in made:
            entry = Entry(
                id=one.id,
                event=event,
                destination=one.destination,
                due=event.due or step.call.now,
                deadline=event.deadline,
                generation=event.generation,
                payload=bytes(event.payload),
            )
            self.entries[entry.id] = entry
            self.of_destination.setdefault(entry.destination, []).append(entry)
            if event.key is not None:
                self.lanes.setdefault((entry.destination, event.key), []).append(entry)

    def _change(self, step: Step, entry: Entry, now: datetime) -> None:
        match step.how:
            case "claimed":
                _begin(entry, step, now)
            case "extended":
                entry.lease_until = now + step.detail
            case "settled" | "released" | "rescued":
                if step.lease is not None:
                    self.ended[step.lease] = step.how
                _end(entry, step, now)
            case "replayed":
                _begin_cycle(entry, step.detail, now)
            case how if how in _SIMPLE:
                field, value = _SIMPLE[how]
                setattr(entry, field, step.detail if value is None else value)
            case _:
                pass


_SIMPLE: dict[str, tuple[str, object]] = {
    "given up": ("status", Status.FAILED),
    "cancelled": ("status", Status.FAILED),
    "edited": ("payload", None),
    "removed": ("removed", None),
    "resolved": ("is_resolved", True),
    "rescheduled": ("due", None),
}
"""What a step sets; `None` is what it was given."""


def _leases(call: Call) -> Iterator[tuple[str, Lease, object]]:
    """Return what was done with which lease, or refused."""
    asked: Sequence[tuple[Lease, object]]
    match call.method:
        case "settle":
            asked = [(one.lease, one.settlement) for one in call.given["batch"]]
        case "rescue":
            asked = [(one.lease, one.recovery) for one in call.given["batch"]]
        case "heartbeat":
            asked = [(lease, call.given["lease"]) for lease in call.given["leases"]]
        case "retire":
            return
        case _:
            asked = [(lease, None) for lease in call.given["leases"]]
    done, not_done = _HELD[call.method]
    refused = frozenset(call.answer)
    for lease, detail in asked:
        yield not_done if lease in refused else done, lease, detail


def _reported(call: Call) -> Iterator[Step]:
    yield from _changed(call, call.answer.changes)
    for name in call.answer.paused:
        yield Step("paused", call, detail=name)


def _turned(call: Call) -> Iterator[Step]:
    """Return what people did to gates and tenants."""
    if not call.answer:
        return
    given = call.given
    if "tenant" in given:
        how = "tenant paused" if call.method == "pause_tenant" else "tenant resumed"
        yield Step(how, call, detail=(given["tenant"], given["destination"]))
    else:
        yield Step(f"{call.method}d", call, detail=given["destination"])


def _acts(call: Call) -> Iterator[tuple[str, DeliveryId, object]]:
    """Return what was done to which delivery, beside leases."""
    given, answer = call.given, call.answer
    match call.method:
        case "expire" | "shed":
            yield from (("given up", one.id, one.reason) for one in answer)
        case "advance_replays":
            for step in answer.steps:
                yield from (("replayed", one, step.replay.generation) for one in step.sent)
        case "replay":
            yield from (("replayed", one, given["generation"]) for one in answer)
        case "edit" if answer:
            yield "edited", given["delivery_id"], bytes(given["payload"])
            if given["is_replayed"]:
                yield "replayed", given["delivery_id"], None
        case "delete" | "discard":
            yield from (("removed", one, call.method) for one in answer)
        case "reschedule":
            yield from (("rescheduled", one, given["due"]) for one in answer)
        case "resolve" | "cancel":
            yield from ((_PAST[call.method], one, None) for one in answer)
        case _:
            pass


def _changed(call: Call, changes: Sequence[BreakerChange]) -> Iterator[Step]:
    for change in changes:
        yield Step("changed", call, detail=change)


def _begin(entry: Entry, step: Step, now: datetime) -> None:
    leased, request = step.detail, step.call.given["request"]
    entry.status = Status.IN_FLIGHT
    entry.token = leased.lease.token
    entry.worker = request.worker
    entry.lease_until = now + request.lease
    entry.is_alone = leased.is_alone
    entry.breaker_generation = leased.breaker_generation


def _end(entry: Entry, step: Step, now: datetime) -> None:
    entry.lease_until, entry.is_alone = None, False
    match step.detail:
        case None:
            entry.status, entry.due = Status.PENDING, min(entry.due, now)
        case Delivered():
            entry.status = Status.DELIVERED
            entry.spent += 1
        case RetryAt(when=when):
            entry.status, entry.due, entry.kind = Status.PENDING, when, Kind.RETRY
            entry.spent += 1
        case Snoozed(until=until):
            entry.status, entry.due = Status.PENDING, until
            entry.snoozes += 1
        case Failed():
            entry.status = Status.FAILED
            entry.spent += step.how == "settled"
            entry.crashes += step.how == "rescued"
        case Requeued(when=when, crashes=crashes):
            entry.status, entry.due, entry.crashes = Status.PENDING, when, crashes
        case _:
            raise AssertionError(f"{step.detail!r} ends no lease")


def _begin_cycle(entry: Entry, generation: str | None, now: datetime) -> None:
    entry.status, entry.kind, entry.due = Status.PENDING, Kind.REPLAY, now
    entry.generation = generation or entry.generation
    entry.cycle += 1
    entry.spent = entry.snoozes = entry.crashes = 0
    if entry.deadline is not None and entry.deadline <= now:
        entry.deadline = None
