"""A small world by hand: what a store did, said in a few words, for the tests of the checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Kind, Lease, Leased, Status
from redrive.model.destination import Destination, Order, Routes
from redrive.model.event import Event, EventId, Receipt
from redrive.model.gate import BreakerChange, BreakerState
from redrive.model.limits import Limits
from redrive.model.outcome import Fault
from redrive.model.position import LogPosition
from redrive.model.settlement import Delivered, Recovery, RetryAt, Settlement
from redrive.store import (
    Appended,
    Backfilled,
    CaughtUp,
    Claim,
    ClaimRequest,
    DestinationFigures,
    Entry,
    Figures,
    LetterFigures,
    Moved,
    Registered,
    Report,
    Reported,
    Rescue,
    Settled,
)
from tests.proof.checkers import Inspector, Promise
from tests.proof.checkers.records import (
    Acknowledged,
    Begun,
    Born,
    Call,
    Ended,
    Looked,
    Made,
    Offered,
    Read,
    Record,
)

__all__ = ["FAULT", "NOW", "Scene"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAULT = Fault(error_class="Busy", message="busy", rule="test")
LEASE = timedelta(seconds=10)


class Scene:
    """An inspector that is told what happened; `time` is what the store's clock says.

    Somebody `follows` the log, and reads each event when it is published.
    """

    def __init__(
        self,
        *,
        order: Order = Order.NONE,
        limits: Limits | None = None,
        max_attempts: int = 3,
        follows: bool = True,
        **options: Any,  # noqa: ANN401 - of the destination
    ) -> None:
        self.time = NOW
        self.destination = Destination(
            name="d", patterns=("*",), order=order, limits=limits or Limits(), **options
        )
        self._promises = {"d": Promise(self.destination, max_attempts)}
        self.inspector = Inspector(self._promises)
        self._published = 0
        self._follows = follows
        self._tokens: dict[int, int] = {}

    @property
    def wrong(self) -> list[str]:
        """The names of the checkers that complained, each once."""
        return list(dict.fromkeys(one.check for one in self.inspector.violations))

    def hear(self, record: Record) -> None:
        self.inspector.hear(record)

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    @property
    def at(self) -> float:
        return (self.time - NOW).total_seconds()

    def call(
        self,
        method: str,
        answer: object,
        *,
        made: tuple[Made, ...] = (),
        since: float | None = None,
        **given: object,
    ) -> None:
        self.hear(
            Call(
                at=self.at,
                now=self.time,
                method=method,
                given=given,
                answer=answer,
                made=made,
                since=since,
            )
        )

    def publish(
        self,
        *,
        acknowledged: bool = True,
        since: float | None = None,
        **attributes: Any,  # noqa: ANN401 - of the event
    ) -> Event[msgspec.Raw]:
        """Offer an event, have it stored with delivery n, the first being 1, and acknowledged."""
        self._published += 1
        number = self._published
        event = Event(
            id=EventId(f"e{number}"),
            type="order.paid",
            payload=msgspec.Raw(b'{"offer":%d}' % number),
            published_at=self.time,
            occurred_at=self.time,
            **attributes,
        )
        self.offer(number, event)
        receipt = Receipt(event_id=event.id, destinations=("d",))
        self.call(
            "append",
            Appended((receipt,)),
            made=(Made(event.id, "d", DeliveryId(number)),),
            entries=[Entry(event, ("d",))],
            since=since,
        )
        if self._follows:
            self.read(number)
        if acknowledged:
            self.hear(Acknowledged(at=self.at, offer=number, receipt=receipt))
        return event

    def read(self, number: int, *, key: str | None = None, version: int | None = None) -> None:
        """Have event n be read, at position n."""
        position, event_id = LogPosition(number=number), EventId(f"e{number}")
        self.hear(Read(at=self.at, position=position, event_id=event_id, key=key, version=version))

    def offer(self, number: int, event: Event[msgspec.Raw], *, batch: int | None = None) -> None:
        self.hear(
            Offered(
                at=self.at,
                offer=number,
                event_type=event.type,
                payload=bytes(event.payload),
                source=event.source,
                idempotency_key=event.idempotency_key,
                batch=batch,
            )
        )

    def join(self, name: str, *, order: Order = Order.NONE, max_attempts: int = 3) -> None:
        """Let there be one more destination that wants everything; only d is routed to."""
        destination = Destination(name=name, patterns=("*",), order=order)
        self._promises[name] = Promise(destination, max_attempts)
        self.register("d")

    def register(self, *names: str) -> None:
        """Have these destinations registered, and no others."""
        destinations = [self._promises[name].destination for name in names]
        self.call("register", Registered(routes=Routes(1, destinations)), destinations=destinations)

    def move(self, number: int, target: str) -> None:
        """Have a delivery moved to another destination."""
        self.call("move", Moved(moved=(DeliveryId(number),)), ids=[number], target=target)

    def backfill(self, destination: str, *events: int, first: int, told: int | None = None) -> None:
        """Have a destination given these events, by deliveries from a number on."""
        made = _made(destination, events, first)
        answer = Backfilled(added=len(made) if told is None else told)
        self.call(
            "backfill", answer, made=made, destination=destination, positions=[], generation=None
        )

    def catch_up(self, *events: int, first: int, told: int | None = None) -> None:
        """Have events given to e later, by deliveries from a number on."""
        made = _made("e", events, first)
        self.call("catch_up", CaughtUp(added=len(made) if told is None else told), made=made)

    def claim(
        self,
        number: int,
        *,
        attempt: int = 1,
        worker: str = "w",
        changes: Sequence[BreakerChange] = (),
        since: float | None = None,
        **fields: Any,  # noqa: ANN401 - of the leased delivery
    ) -> Lease:
        """Have a delivery claimed, with the next token unless one is given."""
        token = fields.pop("token", self._tokens.get(number, 0) + 1)
        self._tokens[number] = token
        lease = Lease(DeliveryId(number), token)
        entry = self.inspector.ledger.entries.get(lease.delivery_id)
        given: dict[str, Any] = {"event": entry.event} if entry else {"event": self.publish()}
        leased = Leased(
            **{
                "lease": lease,
                "destination": "d",
                "attempt": attempt,
                "kind": Kind.FIRST if entry is None else entry.kind,
                "claimed_at": self.time,
                "enqueued_at": self.time,
                **given,
                **fields,
            }
        )
        request = ClaimRequest(
            worker=worker, allowances=(), generations=("default",), limit=100, lease=LEASE
        )
        claim = Claim(now=self.time, deliveries=(leased,), changes=tuple(changes))
        self.call("claim", claim, request=request, since=since)
        return lease

    def answer(self, lease: Lease, outcome: str) -> None:
        """Have the destination be sent the delivery, and answer."""
        entry = self.inspector.ledger.entries[lease.delivery_id]
        leased = Leased(
            lease=lease,
            destination="d",
            event=entry.event,
            attempt=1,
            kind=entry.kind,
            claimed_at=self.time,
            enqueued_at=self.time,
        )
        self.hear(Begun(at=self.at, machine="m", leased=leased))
        self.hear(Ended(at=self.at, lease=lease, outcome=outcome))

    def settle(
        self, lease: Lease, settlement: Settlement, *, outcome: str = "", refused: bool = False
    ) -> None:
        """Have a lease settled after the answer that leads to it."""
        usual = {Delivered: "succeeded", RetryAt: "transient"}
        self.answer(lease, outcome or usual.get(type(settlement), "transient"))
        settled = Settled(lease=lease, settlement=settlement)
        self.call("settle", [lease] if refused else [], batch=[settled])

    def deliver(self, number: int, *, attempt: int = 1) -> None:
        self.settle(self.claim(number, attempt=attempt), Delivered())

    def retry(self, lease: Lease, *, after: float = 0.0) -> None:
        self.settle(lease, RetryAt(when=self.time + timedelta(seconds=after), fault=FAULT))

    def rescue(self, lease: Lease, recovery: Recovery) -> None:
        self.call("rescue", [], batch=[Rescue(lease, recovery)])

    def heartbeat(self, lease: Lease, *, worker: str = "w", refused: bool = False) -> None:
        answer = [lease] if refused else []
        self.call("heartbeat", answer, worker=worker, leases=[lease], lease=LEASE)

    def report(self, change: BreakerChange, *, generation: int) -> None:
        report = Report(destination="d", generation=generation, is_success=False)
        self.call("report", Reported(changes=(change,)), batch=[report])

    def change(self, before: BreakerState, after: BreakerState) -> BreakerChange:
        return BreakerChange(destination="d", before=before, after=after)

    def replay(self, number: int) -> None:
        self.call("replay", [number], ids=[number], actor=Actor("me"), generation=None)

    def born(self, worker: str = "w", machine: str = "m") -> None:
        self.hear(Born(at=self.at, worker=worker, machine=machine))

    def look(
        self,
        *,
        is_final: bool = False,
        without: Sequence[int] = (),
        behind: Mapping[int, int] | None = None,
        stuck: tuple[DeliveryId, ...] = (),
        **figures: Any,  # noqa: ANN401 - of the store
    ) -> None:
        """Look at a store that is as the ledger has it, but for what is asked."""
        deliveries = [
            Delivery(
                id=one.id,
                event_id=one.event.id,
                event_type=one.event.type,
                destination=one.destination,
                status=one.status,
                due=one.due,
                enqueued_at=NOW,
                generation=one.generation,
                attempts=one.spent + (one.status is Status.IN_FLIGHT),
                kind=one.kind,
                crashes=one.crashes,
                deadline=one.deadline,
                reason=None,
                behind=DeliveryId(behind[one.id]) if behind and one.id in behind else None,
            )
            for one in self.inspector.ledger.entries.values()
            if one.id not in without
        ]
        counts: dict[str, Any] = {
            str(status): sum(one.status is status for one in deliveries) for status in Status
        }
        counts["waiting"] = sum(
            one.status is Status.PENDING and one.due > self.time for one in deliveries
        )
        counts["behind"] = sum(one.behind is not None for one in deliveries)
        events = tuple(figures.pop("events", self.inspector.ledger.events.values()))
        told = Figures(
            **{
                "now": self.time,
                "events": len(events),
                "unrouted": 0,
                "refused_settlements": 0,
                "deleted": 0,
                "destinations": (DestinationFigures(name="d", patterns=("*",), **counts),),
                "workers": (),
                "letters": LetterFigures(count=sum(one.is_dead_letter for one in deliveries)),
                **figures,
            }
        )
        self.hear(
            Looked(
                at=self.at,
                now=self.time,
                deliveries=tuple(deliveries),
                events=events,
                figures=told,
                stuck=stuck,
                is_final=is_final,
            )
        )


def _made(destination: str, events: Sequence[int], first: int) -> tuple[Made, ...]:
    return tuple(
        Made(EventId(f"e{one}"), destination, DeliveryId(first + place))
        for place, one in enumerate(events)
    )
