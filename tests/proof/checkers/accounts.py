"""I1, I2 and I14: nothing is lost, nothing is made up, and the figures are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from redrive.model.delivery import Delivery, Kind, Status
from redrive.model.destination import Order
from redrive.model.event import EventId
from redrive.model.recipient import destination_of
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Entry, Ledger, Step
from tests.proof.checkers.records import (
    Acknowledged,
    Backfilled,
    ClockSet,
    Looked,
    Offered,
    Record,
    Refused,
)

__all__ = ["CountersRight", "NoPhantom", "NothingLost"]


class NothingLost(Check):
    """What was acknowledged is there as it must be, or somebody has removed it on record.

    Delivered and resolved ones may be pruned, and are counted.
    """

    name = "I1 lost nothing"

    def __init__(self) -> None:
        self._acknowledged: dict[EventId, tuple[str, ...]] = {}
        self._backfilled: dict[str, frozenset[EventId]] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Acknowledged):
            event_id = record.receipt.event_id
            self._acknowledged[event_id] = record.receipt.destinations
            if event_id not in ledger.events:
                yield f"offer {record.offer} was acknowledged, and {event_id} is not stored"
        elif isinstance(record, Backfilled):
            self._backfilled[record.destination] = frozenset(ledger.events)
        elif isinstance(record, Looked):
            yield from self._look(ledger, record)

    def _look(self, ledger: Ledger, looked: Looked) -> Iterator[str]:
        found = {one.id: one for one in looked.deliveries}
        kept: Counter[tuple[EventId, str]] = Counter()
        pruned = 0
        for entry in ledger.entries.values():
            kept.update((entry.event.id, name) for name in (*entry.been, _given(entry)))
            delivery = found.get(entry.id)
            if delivery is None:
                may_go = entry.status is Status.DELIVERED or entry.is_resolved
                pruned += may_go and not entry.removed
                if not may_go and not entry.removed:
                    yield f"{entry} is gone; it was {entry.status}"
            elif entry.removed:
                yield f"{entry} is there, and it was removed ({entry.removed})"
            else:
                yield from _compare(entry, delivery)
        told = looked.figures.pruned + looked.figures.pruned_resolved
        if told != pruned:
            yield f"{pruned} deliveries are gone, and {told} were counted as pruned"
        for event_id, destinations in self._acknowledged.items():
            for name in destinations:
                is_read = ledger.promises[destination_of(name)].destination.is_projection
                if not kept[event_id, name] and not is_read:
                    yield f"{event_id} has no delivery to {name}"
        if looked.is_final:
            yield from self._look_for_gaps(ledger, looked)

    def _look_for_gaps(self, ledger: Ledger, looked: Looked) -> Iterator[str]:
        """Look for events that a backfill has left out, though neither time nor order did.

        And for those that were stored by older routes, and never got what they lack by the newer.
        """
        for event in looked.events:
            for name in [name for number, name in ledger.lacking if number == event.id]:
                yield f"{event.id} was stored when it was routed to {name}, and never given to it"
            had = [
                name
                for one in ledger.of_event.get(event.id, ())
                for name in (*one.been, one.destination)
            ]
            for name, events in self._backfilled.items():
                destination = ledger.promises[name].destination
                may_wait = event.key is not None and destination.order is not Order.NONE
                is_meant = event.deadline is None and destination.wants(event.type, event.tenant)
                if event.id in events and is_meant and not may_wait and name not in had:
                    yield f"{event.id} was not given to {name} when that was backfilled"


def _given(entry: Entry) -> str:
    """Return as whom an entry has its event: a service by the rule that gave it, ever after."""
    return entry.given_as if entry.rule else entry.destination


def _compare(entry: Entry, delivery: Delivery) -> Iterator[str]:
    expected = {
        "status": entry.status,
        "destination": entry.destination,
        "event_id": entry.event.id,
        "rule": entry.rule,
        "generation": entry.generation,
        "attempts": entry.spent + (entry.status is Status.IN_FLIGHT),
        "snoozes": entry.snoozes,
        "crashes": entry.crashes,
        "deadline": entry.deadline,
    }
    if entry.status is Status.PENDING:
        expected["due"] = entry.due
        expected["kind"] = entry.kind
    for field, value in expected.items():
        if getattr(delivery, field) != value:
            yield f"{entry}: {field} is {getattr(delivery, field)!r}, and must be {value!r}"
    if (delivery.resolution is not None) is not entry.is_resolved:
        yield f"{entry}: resolved is {delivery.resolution!r}, and must be {entry.is_resolved}"
    if delivery.status is Status.FAILED and (delivery.reason is None or delivery.fault is None):
        yield f"{entry} has failed, and does not say why"
    if len(delivery.cycles) != min(entry.cycle, 20):
        yield f"{entry} has {len(delivery.cycles)} earlier cycles, and must have {entry.cycle}"


class NoPhantom(Check):
    """Every event comes from an offer, whole, once for an idempotency key; a batch all or none."""

    name = "I2 no phantom"

    def __init__(self) -> None:
        self._offers: dict[int, Offered] = {}
        self._by_payload: dict[bytes, int] = {}
        self._refused: dict[int, None] = {}
        self._receipts: dict[int, EventId] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how != "stored":
            return
        event, made = step.detail
        offer = self._by_payload.get(bytes(event.payload))
        if offer is None or self._offers[offer].event_type != event.type:
            yield f"the event {event.id} was never offered"
        got = sorted(one.recipient for one in made)
        # Who does not see the end of the routes it goes by stores what is given the rest later.
        *earlier, wanted = ledger.wanting(event, since=step.call.since)
        if got != wanted and got not in earlier:
            yield f"the event {event.id} has deliveries to {got}, and is wanted by {wanted}"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Offered(offer=offer):
                self._offers[offer] = record
                self._by_payload.setdefault(record.payload, offer)
            case Refused(offer=offer):
                self._refused[offer] = None
            case Acknowledged(offer=offer, receipt=receipt):
                self._receipts[offer] = receipt.event_id
                stored = ledger.events.get(receipt.event_id)
                offered = self._offers.get(offer)
                if stored and offered and bytes(stored.payload) != offered.payload:
                    yield f"offer {offer} was acknowledged as {stored.id}, which is another body"
            case Looked():
                yield from self._look(record)
            case _:
                pass

    def _look(self, looked: Looked) -> Iterator[str]:
        keys: Counter[tuple[str, str]] = Counter()
        stored: Counter[bytes] = Counter()
        for event in looked.events:
            stored[bytes(event.payload)] += 1
            if event.idempotency_key is not None:
                keys[event.source, event.idempotency_key] += 1
        for (source, key), count in keys.items():
            if count > 1:
                yield f"the idempotency key {key!r} of {source!r} is stored {count} times"
        for offer, offered in self._offers.items():
            count = stored[offered.payload]
            # The same payload is offered again only under its idempotency key.
            if count > 1 and offered.idempotency_key is None:
                yield f"offer {offer} is stored {count} times"
            is_first = self._by_payload[offered.payload] == offer
            if offer in self._refused and count and is_first and offer not in self._receipts:
                yield f"offer {offer} was refused, and is stored"
        if not looked.figures.pruned_events:
            yield from self._look_at_batches(stored)

    def _look_at_batches(self, stored: Counter[bytes]) -> Iterator[str]:
        batches: dict[int, list[bool]] = {}
        for offered in self._offers.values():
            if offered.batch is not None:
                batches.setdefault(offered.batch, []).append(stored[offered.payload] > 0)
        for batch, present in batches.items():
            if any(present) and not all(present):
                yield f"of batch {batch} only {sum(present)} of {len(present)} are stored"


class CountersRight(Check):
    """The figures equal a recount of everything."""

    name = "I14 counters"

    def __init__(self) -> None:
        self._latest: datetime | None = None

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, ClockSet):
            self._latest = max(record.was, self._latest or record.was)
        if not isinstance(record, Looked):
            return
        yield from _recount(record, latest=max(record.now, self._latest or record.now))
        figures = record.figures
        totals = (
            ("events", figures.events, len(record.events)),
            (
                "deleted",
                figures.deleted,
                sum(one.removed == "delete" for one in ledger.entries.values()),
            ),
            (
                "dead letters",
                figures.letters.count,
                sum(one.is_dead_letter for one in record.deliveries),
            ),
        )
        for what, told, counted in totals:
            if told != counted:
                yield f"{what}: {told} are told, and there are {counted}"
        for one in record.miscounts:
            yield f"{one.destination}: {one.what} is kept as {one.kept}, and is {one.counted}"
        for replay in record.replays:
            if replay.left < 0 or replay.under_way < 0:
                yield f"replay {replay.id} has {replay.left} left, {replay.under_way} under way"


def _recount(looked: Looked, *, latest: datetime) -> Iterator[str]:
    """Count the deliveries of each destination by status, and by why they wait.

    What had come due before the clock was set back may be told as waiting again, or as due.
    """
    counts: Counter[tuple[str, str]] = Counter()
    unsure: Counter[tuple[str, str]] = Counter()
    for one in looked.deliveries:
        status = "resolved" if one.resolution is not None else str(one.status)
        counts[one.destination, status] += 1
        if one.status is Status.PENDING:
            counts[one.destination, "behind"] += one.behind is not None
            which = counts if one.due > latest else unsure
            is_waiting = one.due > looked.now
            which[one.destination, "waiting"] += is_waiting
            which[one.destination, "retrying"] += is_waiting and one.kind is Kind.RETRY
    for told in looked.figures.destinations:
        for field in (*Status, "resolved", "behind", "waiting", "retrying"):
            value, counted = getattr(told, field), counts[told.name, field]
            if not counted <= value <= counted + unsure[told.name, field]:
                yield f"{told.name}: {field} is told as {value}, and there are {counted}"
