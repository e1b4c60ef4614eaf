"""Facts: what happened at each step, told once to whoever watches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.delivery import Delivery, DeliveryId, Lease, Leased
from redrive.model.event import EventId, Receipt
from redrive.model.gate import BreakerChange
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason, Recovery, Settlement
from redrive.store import Overdue, Pruned, Redeclared, Replay

__all__ = [
    "AlreadyApplied",
    "BreakerChanged",
    "Claimed",
    "DeadLettered",
    "DeclarationChanged",
    "DeclarationsAgree",
    "DeclarationsDiffer",
    "DestinationOrphaned",
    "DestinationPaused",
    "EncryptionStuck",
    "EventSkipped",
    "EventsCompleted",
    "ExportFailed",
    "Fact",
    "HandlerStuck",
    "HealthChecked",
    "HistoryPruned",
    "LeasesLost",
    "LettersExported",
    "LettersNearLimit",
    "LettersRegrouped",
    "ListeningBack",
    "ListeningLost",
    "Observer",
    "Observers",
    "Operated",
    "ProjectionFailed",
    "Published",
    "ReplayEnded",
    "ReplayStarted",
    "ReplayStopped",
    "Rescued",
    "ScheduleFailed",
    "ServiceUnserved",
    "Settlements",
    "SettlementsRefused",
    "StoreBack",
    "StoreLost",
    "TicksLeftOut",
    "TicksPublished",
    "WaveSent",
    "WorkStranded",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
    "WorkerWedged",
    "Written",
]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Events were written in a transaction of the caller's that does not tell us how it ends.

    They are durable once it commits, and nobody hears of it: there will be no `Published`.
    """

    events: tuple[tuple[str, Receipt], ...]
    """The type and the receipt of each event."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Events and their deliveries are durable.

    Of those in a transaction of `app.transaction()`, or of a transactional handler on SQLite, it
    is told when that has committed, and never if it has not.
    """

    events: tuple[tuple[str, Receipt], ...]
    """The type and the receipt of each event."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A worker leased deliveries."""

    worker: str
    deliveries: tuple[Leased, ...]


class Settlements(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's settlements were accepted."""

    worker: str
    settled: tuple[tuple[Leased, Settlement], ...]
    took: tuple[float, ...] = ()
    """How many seconds each try took, in the order of `settled`."""
    codes: tuple[str, ...] = ()
    """How each destination took what it took, where that is told, in the same order."""


class SettlementsRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Settlements came too late: the lease was no longer theirs, and nothing was changed."""

    worker: str
    leases: tuple[Lease, ...]


class AlreadyApplied(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery was settled without running its handler: the effect had been applied before."""

    worker: str
    leased: Leased


class LeasesLost(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat found that leases had run out; those deliveries may run elsewhere by now."""

    worker: str
    leases: tuple[Lease, ...]


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery was taken back from a worker that is gone."""

    overdue: Overdue
    recovery: Recovery


class DeadLettered(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery failed for good and now waits for a person.

    `cycles` is how often it was replayed before, as far as its story remembers.
    """

    delivery_id: DeliveryId
    event_id: EventId
    event_type: str
    destination: str
    tenant: str | None
    reason: FailureReason
    fault: Fault
    attempts: int
    key: str | None = None
    source: str = ""
    cycles: int = 0

    @property
    def group(self) -> str:
        """The id of the group of dead letters that failed in the same way."""
        return self.fault.group

    @classmethod
    def of(cls, delivery: Delivery, reason: FailureReason, fault: Fault) -> DeadLettered:
        """Return the fact about a stored delivery."""
        return cls(
            delivery_id=delivery.id,
            event_id=delivery.event_id,
            event_type=delivery.event_type,
            destination=delivery.destination,
            tenant=delivery.tenant,
            reason=reason,
            fault=fault,
            attempts=delivery.attempts,
            key=delivery.key,
            source=delivery.source,
            cycles=len(delivery.cycles),
        )


class BreakerChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A destination's breaker went from one state to another."""

    change: BreakerChange
    by: str = ""
    """Who changed it; empty when the results of attempts did."""


class DestinationPaused(msgspec.Struct, frozen=True, kw_only=True):
    """The engine itself paused a destination, which waits for a person to resume it."""

    destination: str
    why: str


class HealthChecked(msgspec.Struct, frozen=True, kw_only=True):
    """A destination whose breaker is open was asked for its health; `error` is empty if well."""

    destination: str
    error: str = ""


class ReplayStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A person, or an auto-replay, began to replay many dead letters."""

    replay: Replay


class WaveSent(msgspec.Struct, frozen=True, kw_only=True):
    """A replay sent letters again: a wave, or a part of a large one."""

    replay: Replay
    deliveries: tuple[DeliveryId, ...]


class ReplayStopped(msgspec.Struct, frozen=True, kw_only=True):
    """A replay stopped itself because too many letters failed again."""

    replay: Replay


class ReplayEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Every letter of a replay had its turn."""

    replay: Replay


class TicksPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a schedule were published; `missed` of its ticks were later than they may be."""

    schedule: str
    ticks: tuple[datetime, ...]
    missed: int = 0


class TicksLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks of a schedule were not published: `count` of them, or more if `has_more`."""

    schedule: str
    count: int
    why: str
    has_more: bool = False


class ScheduleFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The event of a tick could not be made; it is tried again, ever more seldom."""

    schedule: str
    error: str


class ProjectionFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A projection cannot go on, and not because of one event; it tries again."""

    worker: str
    projection: str
    error: str


class HandlerStuck(msgspec.Struct, frozen=True, kw_only=True):
    """A handler neither ended at its time-out nor within the grace after it."""

    worker: str
    destination: str
    deliveries: tuple[DeliveryId, ...]


class WorkerWedged(msgspec.Struct, frozen=True, kw_only=True):
    """A handler blocks the worker's event loop; the process ends so that a new one can start."""

    worker: str
    destination: str
    deliveries: tuple[DeliveryId, ...]


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker takes up its work."""

    worker: str
    destinations: tuple[str, ...]
    concurrency: int


class WorkerStopping(msgspec.Struct, frozen=True, kw_only=True):
    """A worker claims nothing more and finishes what it carries."""

    worker: str
    carrying: int


class WorkerStopped(msgspec.Struct, frozen=True, kw_only=True):
    """A worker has ended; what it could not finish was given back.

    `left` are the deliveries whose handlers did not end: they are held until this process ends.
    """

    worker: str
    released: int
    left: tuple[DeliveryId, ...] = ()


class HistoryPruned(msgspec.Struct, frozen=True, kw_only=True):
    """What had been kept long enough was removed."""

    pruned: Pruned


class LettersRegrouped(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of an older version were given the group they belong to now.

    `count` were since this was told last, and `left` are still to be.
    """

    count: int
    left: int


class EncryptionStuck(msgspec.Struct, frozen=True, kw_only=True):
    """What is encrypted cannot be brought to how it is to be kept, because a key is not here."""

    error: str


class EventsCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were published by older routes got the deliveries they missed."""

    deliveries: int


class LettersNearLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A destination's dead letters will soon be exported and removed unless somebody acts."""

    destination: str
    limit: str
    """Which limit is near, in words."""


class LettersExported(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters over their destination's limit are in a file, and no longer in the store."""

    destination: str
    count: int
    file: str


class ExportFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters over their destination's limit could not be exported, and stay."""

    destination: str
    error: str


class WorkStranded(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries are due of a generation that no live worker claims; counted up to a thousand."""

    destination: str
    generation: str
    count: int


class DestinationOrphaned(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries are due to a destination that no live worker serves; counted up to a thousand."""

    destination: str
    count: int


class StoreLost(msgspec.Struct, frozen=True, kw_only=True):
    """The store cannot be reached or written; the worker keeps its settlements and tries again.

    `trouble` says what is wrong in words of ours, for whoever must not see the error.
    """

    worker: str
    error: str
    trouble: str = "the store does not answer"


class StoreBack(msgspec.Struct, frozen=True, kw_only=True):
    """The store answers and can be written again."""

    worker: str


class ListeningLost(msgspec.Struct, frozen=True, kw_only=True):
    """The connection that hears of new work is gone; until it is back, work is found by polling."""

    store: str
    error: str


class ListeningBack(msgspec.Struct, frozen=True, kw_only=True):
    """New work is heard of at once again."""

    store: str


class DeclarationChanged(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared here took effect; `worker` is empty if the process only publishes."""

    worker: str
    change: Redeclared


class DeclarationsDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """A worker declares another than what is in force, of these destinations, and follows that.

    `removed` are those it declares that a person removed: they get nothing.
    """

    worker: str
    destinations: tuple[str, ...]
    removed: tuple[str, ...] = ()


class ServiceUnserved(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cannot serve a stored service, and leaves it to others; `why` says what it lacks."""

    worker: str
    service: str
    why: str


class EventSkipped(msgspec.Struct, frozen=True, kw_only=True):
    """A rule passed an event by, because its condition failed and the rule has said so."""

    rule: str
    event_id: EventId
    event_type: str
    why: str


class DeclarationsAgree(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker declares is in force again."""

    worker: str


class Operated(msgspec.Struct, frozen=True, kw_only=True):
    """A person changed deliveries, a destination, a tenant's part in them, a replay and so on."""

    action: str
    by: str
    why: str
    deliveries: tuple[DeliveryId, ...] = ()
    destination: str = ""
    replay: int | None = None
    tenant: str = ""
    schedule: str = ""
    token: str = ""
    user: str = ""
    secret: str = ""


Fact = (
    Published
    | Written
    | Claimed
    | Settlements
    | SettlementsRefused
    | AlreadyApplied
    | LeasesLost
    | Rescued
    | DeadLettered
    | BreakerChanged
    | DestinationPaused
    | HealthChecked
    | ReplayStarted
    | WaveSent
    | ReplayStopped
    | ReplayEnded
    | TicksPublished
    | TicksLeftOut
    | ScheduleFailed
    | ProjectionFailed
    | HandlerStuck
    | WorkerWedged
    | WorkerStarted
    | WorkerStopping
    | WorkerStopped
    | HistoryPruned
    | EventsCompleted
    | LettersNearLimit
    | EncryptionStuck
    | LettersRegrouped
    | LettersExported
    | ExportFailed
    | WorkStranded
    | DestinationOrphaned
    | StoreLost
    | StoreBack
    | ListeningLost
    | ListeningBack
    | DeclarationChanged
    | DeclarationsDiffer
    | ServiceUnserved
    | EventSkipped
    | DeclarationsAgree
    | Operated
)


class Observer(Protocol):
    """Someone who watches."""

    def notice(self, fact: Fact) -> None:
        """Take note, quickly: the engine waits. May be called from any thread."""


class Observers:
    """Several observers as one; a broken one harms neither the engine nor the others."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """Let one more watch."""
        self._observers.append(observer)

    def notice(self, fact: Fact) -> None:
        """Tell every observer."""
        for observer in self._observers:
            try:
                observer.notice(fact)
            except Exception:
                logging.getLogger("redrive").exception(
                    "The observer %s failed at %s.", type(observer).__name__, type(fact).__name__
                )
