"""The books of a run with real processes, judged by the checkers that the simulation uses.

Nobody stood beside the store here. What it holds at the end is told to the checkers as if it had
just been stored, so they judge what must be true of that: nothing acknowledged is missing, nothing
is made up or there twice, the log is whole, all is settled, and the figures are right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.destination import Destination
from redrive.model.event import EventId, Receipt
from redrive.policies.payload import encode_payload
from redrive.store import Appended, Entry, Figures, LoggedEvent, Miscount
from tests.proof.checkers import Check, Inspector, Promise, Violation
from tests.proof.checkers.accounts import CountersRight, NoPhantom, NothingLost
from tests.proof.checkers.endings import AllSettles
from tests.proof.checkers.projections import LogReadWhole
from tests.proof.checkers.records import Acknowledged, Call, Healed, Looked, Made, Offered, Read

__all__ = ["CHECKS", "Books", "judge"]

CHECKS: tuple[type[Check], ...] = (
    NothingLost,
    NoPhantom,
    LogReadWhole,
    AllSettles,
    CountersRight,
)
"""The invariants that can be told from what is left at the end."""


class Books(msgspec.Struct, frozen=True, kw_only=True):
    """What publishers wrote down, by number, and what the store holds."""

    tried: Collection[int]
    acknowledged: Collection[int]
    events: Sequence[LoggedEvent]
    deliveries: Sequence[Delivery]
    figures: Figures
    stuck: Sequence[DeliveryId] = ()
    miscounts: Sequence[Miscount] = ()


def judge(books: Books, destinations: Sequence[Destination]) -> list[Violation]:
    """Return what is wrong, which is nothing."""
    promises = {one.name: Promise(one, max_attempts=1) for one in destinations}
    inspector = Inspector(promises, CHECKS)
    for number in sorted(books.tried):
        inspector.hear(_offer(number))
    of_event: dict[EventId, list[Delivery]] = {}
    for one in books.deliveries:
        of_event.setdefault(one.event_id, []).append(one)
    for record in _stored(books, of_event):
        inspector.hear(record)
    for delivery in books.deliveries:
        _follow(inspector, delivery)
    ids = {_number(one): one.event.id for one in books.events}
    for number in sorted(books.acknowledged):
        inspector.hear(_acknowledgement(number, ids, of_event))
    inspector.hear(Healed(at=0.0, bound=0.0))
    inspector.hear(
        Looked(
            at=0.0,
            now=books.figures.now,
            deliveries=tuple(books.deliveries),
            events=tuple(one.event for one in books.events),
            figures=books.figures,
            stuck=tuple(books.stuck),
            miscounts=tuple(books.miscounts),
            is_final=True,
        )
    )
    return inspector.violations


def _stored(books: Books, of_event: Mapping[EventId, Sequence[Delivery]]) -> Iterator[Call | Read]:
    for one in books.events:
        event = one.event
        made = tuple(
            Made(event.id, found.destination, found.id) for found in of_event.get(event.id, ())
        )
        names = tuple(found.destination for found in made)
        yield Call(
            at=0.0,
            now=event.published_at,
            method="append",
            given={"entries": [Entry(event, names)]},
            answer=Appended((Receipt(event_id=event.id, destinations=names),)),
            made=made,
        )
        yield Read(
            at=0.0,
            position=one.position,
            event_id=event.id,
            key=event.key,
            version=one.version,
        )


def _follow(inspector: Inspector, delivery: Delivery) -> None:
    """Have a delivery in the ledger as it ended: how it came to that, nobody saw."""
    entry = inspector.ledger.entries.get(delivery.id)
    if entry is not None:
        entry.status, entry.kind, entry.due = delivery.status, delivery.kind, delivery.due
        entry.spent, entry.snoozes = delivery.attempts, delivery.snoozes
        entry.crashes, entry.cycle = delivery.crashes, len(delivery.cycles)


def _offer(number: int) -> Offered:
    return Offered(
        at=0.0,
        offer=number,
        event_type="thing.made",
        payload=encode_payload({"number": number}),
        idempotency_key=str(number),
    )


def _acknowledgement(
    number: int, ids: Mapping[int, EventId], of_event: Mapping[EventId, Sequence[Delivery]]
) -> Acknowledged:
    event_id = ids.get(number, EventId(f"the event of {number}"))
    names = tuple(one.destination for one in of_event.get(event_id, ()))
    receipt = Receipt(event_id=event_id, destinations=names)
    return Acknowledged(at=0.0, offer=number, receipt=receipt)


def _number(one: LoggedEvent) -> int:
    return int(msgspec.json.decode(one.event.payload)["number"])
