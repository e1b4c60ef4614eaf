"""The ledger: what must be true of every delivery, going by what the store has done so far."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from redrive.conditions.routing import fulfils
from redrive.model.delivery import DeliveryId, Kind, Lease, Status
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId, Receipt
from redrive.model.gate import BreakerChange, BreakerState, Closed
from redrive.model.limits import Rate
from redrive.model.recipient import destination_of, recipient, split_pin
from redrive.model.rule import Stored
from redrive.store import Appended, GatewayChange
from tests.proof.checkers.entry import Entry, Step, begin, begin_cycle, end, move
from tests.proof.checkers.records import Call

__all__ = ["Entry", "Ledger", "Promise", "Step"]

_REROUTING = (
    *("register", "unregister", "reregister", "backfill", "catch_up", "move", "drop"),
    "change_gateway",
)
_PAST = {"resolve": "resolved", "cancel": "cancelled", "render_again": "rendered again"}
_HELD = {
    "settle": ("settled", "settle refused"),
    "release": ("released", "release refused"),
    "heartbeat": ("extended", "extend refused"),
    "extend": ("extended", "extend refused"),
    "rescue": ("rescued", "rescue refused"),
}


class Promise(NamedTuple):
    """A destination, and how often it is tried."""

    destination: Destination
    max_attempts: int


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
    of_event: dict[EventId, list[Entry]] = field(default_factory=dict)
    places: dict[EventId, int] = field(default_factory=dict)
    """Where each event comes in publish order."""
    routed: tuple[str, ...] | None = None
    """The destinations that events are routed to; all of them while nobody has registered."""
    past: list[tuple[float, tuple[Destination, ...]]] = field(default_factory=list)
    """To which destinations events were routed before, and until when."""
    stored: dict[EventId, float] = field(default_factory=dict)
    """By the routes of which time each event may have been stored."""
    lacking: dict[tuple[EventId, str], None] = field(default_factory=dict)
    """What events that were stored by older routes than there were are still to be given."""
    documents: dict[tuple[str, str], Stored] = field(default_factory=dict)
    """What is in force of services and rules, by kind and name."""
    rules: dict[str, Stored] = field(default_factory=dict)
    """Every version of every rule, by how deliveries name it."""
    rates: dict[str, Rate | None] = field(default_factory=dict)
    """The loosest rate of first attempts that was ever in force, where it has changed."""
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
            holds_up = one.is_dead_letter and not skips and not one.was_passed_by
            if one.is_waiting or holds_up:
                return one
        return None

    def wanting(self, event: Event[msgspec.Raw], *, since: float | None = None) -> list[list[str]]:
        """Return the recipients that an event is routed to now.

        Before them come those that it was routed to by all the routes that were in force `since`.
        """
        earlier = [routes for until, routes in self.past if since is not None and until >= since]
        return [sorted(_names(routes, event)) for routes in (*earlier, self._routes())]

    def _routes(self) -> tuple[Destination, ...]:
        return tuple(
            promise.destination
            for name, promise in self.promises.items()
            if self.routed is None or name in self.routed
        )

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
            case "settle" | "release" | "heartbeat" | "extend" | "rescue" | "retire":
                yield Step(call.method, call)
                for how, lease, detail in _leases(call):
                    yield self._about(how, call, lease, detail)
            case method if method in _REROUTING:
                yield from self._rerouted(call)
            case "report" | "open_breaker" | "reset_breaker" | "start_auto_replays":
                yield from _reported(call)
            case "pause" | "resume" | "pause_tenant" | "resume_tenant":
                yield from _turned(call)
            case _:
                for how, number, detail in _acts(call):
                    yield Step(how, call, self.entries.get(number), None, detail)

    def apply(self, step: Step) -> None:
        """Follow one step."""
        entry, now = step.entry, step.call.now
        match step.how:
            case "stored" | "backfilled" | "caught up":
                self._store(step)
            case "routed":
                self.past.append((step.call.at, self._routes()))
                self.routed = step.detail
                self.lacking = {
                    pair: None for pair in self.lacking if destination_of(pair[1]) in step.detail
                }
                self._follow(step.call)
            case "gateway":
                self._change_documents(step.detail)
            case "changed" | "paused" | "resumed" | "tenant paused" | "tenant resumed":
                self._turn_gate(step)
            case _ if entry is not None:
                self._change(step, entry, now)
            case _:
                pass

    def _turn_gate(self, step: Step) -> None:
        match step.how:
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
            case _:
                self.paused_tenants.pop(step.detail, None)

    def _change_documents(self, change: GatewayChange) -> None:
        for gone in change.gone:
            del self.documents[gone.kind, gone.name]
        for kept in change.kept:
            self.documents[kept.kind, kept.name] = kept
            if kept.kind == "rule":
                self.rules[kept.pin] = kept

    def _follow(self, call: Call) -> None:
        """Go by what is in force from now on."""
        for one in _brought(call):
            promise = self.promises[one.name]
            before = promise.destination
            if one == before:
                continue
            if before.order is Order.SKIP and one.order is not Order.SKIP:
                for entry in self.of_destination.get(one.name, ()):
                    entry.was_passed_by |= entry.is_dead_letter
            self.rates[one.name] = _looser(self.rate(one.name), one.limits.rate)
            self.promises = {**self.promises, one.name: promise._replace(destination=one)}

    def rate(self, destination: str) -> Rate | None:
        """Return the loosest rate of first attempts there was."""
        current = self.promises[destination].destination.limits.rate
        return self.rates.get(destination, current)

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
        now, due = step.call.now, event.due or step.call.now
        if step.how == "stored":
            self.events[event.id] = event
            self.places[event.id] = len(self.places)
            self.stored[event.id] = step.call.at if step.call.since is None else step.call.since
            self.lacking |= {(event.id, _of_any(name)): None for name in self.wanting(event)[-1]}
        is_backfilled = step.how == "backfilled"
        for one in made:
            entry = Entry(
                id=one.id,
                event=event,
                destination=one.destination,
                rule=one.rule,
                given_as=one.recipient,
                due=max(due, now) if is_backfilled else due,
                deadline=event.deadline,
                generation=step.call.given.get("generation") or event.generation,
                payload=bytes(event.payload),
                kind=Kind.REPLAY if is_backfilled else Kind.FIRST,
            )
            self.entries[entry.id] = entry
            self.of_event.setdefault(event.id, []).append(entry)
            self._line_up(entry)

    def _line_up(self, entry: Entry) -> None:
        """Have an entry among those of its destination, in the lane where its id says."""
        self.lacking.pop((entry.event.id, _of_any(recipient(entry.destination, entry.rule))), None)
        self.of_destination.setdefault(entry.destination, []).append(entry)
        if entry.event.key is not None:
            lane = self.lanes.setdefault((entry.destination, entry.event.key), [])
            insort(lane, entry, key=lambda one: one.id)

    def _move(self, entry: Entry, target: str) -> None:
        self.of_destination[entry.destination].remove(entry)
        if entry.event.key is not None:
            self.lanes[entry.destination, entry.event.key].remove(entry)
        move(entry, target)
        self._line_up(entry)

    def _rerouted(self, call: Call) -> Iterator[Step]:
        """Return what changed of who is given what."""
        given, answer = call.given, call.answer
        match call.method:
            case "move":
                for one in answer.moved:
                    yield Step("moved", call, self.entries.get(one), None, given["target"])
            case "drop":
                for one in answer:
                    yield Step("removed", call, self.entries.get(one), None, "delete")
            case "backfill" | "catch_up":
                yield from self._added(call)
            case _:
                if call.method == "change_gateway":
                    yield Step("gateway", call, detail=given["change"])
                yield Step("routed", call, detail=self._routed(call))

    def _routed(self, call: Call) -> tuple[str, ...]:
        if call.method == "change_gateway":
            change = call.given["change"]
            names = {one.name: None for one in (*self._routes(), *change.destinations)}
            gone = [one.name for one in change.gone if one.kind == "service"]
            return tuple(one for one in names if one not in gone)
        if call.method == "register":
            return tuple(one.name for one in call.answer.routes.destinations)
        known = self.promises if self.routed is None else self.routed
        others = tuple(one for one in known if one != call.given["destination"])
        return (*others, call.given["destination"]) if call.method == "reregister" else others

    def _added(self, call: Call) -> Iterator[Step]:
        """Return what events were given after they were stored."""
        how = "backfilled" if call.method == "backfill" else "caught up"
        fresh = [one for one in call.made if one.id not in self.entries]
        for one in fresh:
            yield Step(how, call, detail=(self.events[one.event_id], [one]))
        yield Step("added", call, detail=len(fresh))

    def _change(self, step: Step, entry: Entry, now: datetime) -> None:
        was_failed = entry.status is Status.FAILED
        self._turn(step, entry, now)
        if entry.status is Status.FAILED and not was_failed:
            entry.failed_at = step.call.at

    def _turn(self, step: Step, entry: Entry, now: datetime) -> None:
        match step.how:
            case "claimed":
                begin(entry, step, now)
            case "extended":
                entry.lease_until = now + step.detail
            case "settled" | "released" | "rescued":
                if step.lease is not None:
                    self.ended[step.lease] = step.how
                end(entry, step, now)
            case "moved":
                self._move(entry, step.detail)
            case "replayed":
                begin_cycle(entry, step.detail, now)
            case "rendered again":
                name, _ = split_pin(entry.rule)
                entry.rule = self.documents["rule", name].pin
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


def _names(routes: Sequence[Destination], event: Event[msgspec.Raw]) -> Iterator[str]:
    for one in routes:
        for name, route in one.recipients(event.type, event.tenant):
            if fulfils(route, event):
                yield name


def _of_any(recipient: str) -> str:
    """Return a recipient whichever version of its rule it is by."""
    return recipient.partition("@")[0]


def _looser(one: Rate | None, other: Rate | None) -> Rate | None:
    """Return a rate that lets through whatever one of the two does."""
    if one is None or other is None:
        return None
    return Rate(per_second=max(one.per_second, other.per_second), burst=max(one.burst, other.burst))


def _leases(call: Call) -> Iterator[tuple[str, Lease, object]]:
    """Return what was done with which lease, or refused."""
    asked: Sequence[tuple[Lease, object]]
    match call.method:
        case "settle":
            asked = [(one.lease, one.settlement) for one in call.given["batch"]]
        case "rescue":
            asked = [(one.lease, one.recovery) for one in call.given["batch"]]
        case "heartbeat" | "extend":
            asked = [(lease, call.given["lease"]) for lease in call.given["leases"]]
        case "retire":
            return
        case _:
            asked = [(lease, None) for lease in call.given["leases"]]
    done, not_done = _HELD[call.method]
    refused = frozenset(call.answer)
    for lease, detail in asked:
        yield not_done if lease in refused else done, lease, detail


def _brought(call: Call) -> Sequence[Destination]:
    """Return the destinations of which something else may be in force from now on."""
    if call.method == "register":
        found: Sequence[Destination] = call.answer.routes.destinations
        return found
    return call.given["change"].destinations if call.method == "change_gateway" else ()


def _reported(call: Call) -> Iterator[Step]:
    """Return what came due, and what became of gates."""
    if call.method == "start_auto_replays":
        yield from (Step("auto_replay", call, detail=one) for one in call.answer)
        return
    if call.method != "report":
        yield from _changed(call, (call.answer,))
        return
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
        case method if method in _PAST:
            yield from ((_PAST[method], one, None) for one in answer)
        case _:
            pass


def _changed(call: Call, changes: Sequence[BreakerChange]) -> Iterator[Step]:
    for change in changes:
        yield Step("changed", call, detail=change)
