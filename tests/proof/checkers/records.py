"""What is written down while a system runs: enough to tell whether it kept its promises.

Whoever drives the system writes what it did and heard; a witness at the store writes what the
store did. `at` is true time in seconds, which no process knows; `now` is what the store's clock
said.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from redrive.model.audit import AuditEntry
from redrive.model.delivery import Delivery, DeliveryId, Lease, Leased
from redrive.model.event import Event, EventId, Receipt
from redrive.model.position import LogPosition
from redrive.model.projection import partition_of
from redrive.model.recipient import recipient
from redrive.store import Figures, Miscount, Replay

__all__ = [
    "Acknowledged",
    "Arrived",
    "Backfilled",
    "Begun",
    "Born",
    "Call",
    "ClockSet",
    "Counted",
    "Died",
    "Ended",
    "GivenUp",
    "Hampered",
    "Healed",
    "Intended",
    "Left",
    "Looked",
    "Made",
    "Modelled",
    "Offered",
    "Read",
    "Record",
    "Refused",
    "Requested",
    "Served",
    "Silenced",
    "Stopped",
    "Stopping",
    "Tracked",
    "Uncertain",
    "Wanted",
]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    at: float


class Offered(Record, frozen=True, kw_only=True):
    """A publisher is about to publish; the payload carries the number of the offer.

    Offers of one `batch` are stored together or not at all.
    """

    offer: int
    event_type: str
    payload: bytes
    source: str = ""
    idempotency_key: str | None = None
    batch: int | None = None


class Acknowledged(Record, frozen=True, kw_only=True):
    """The publisher has the receipt."""

    offer: int
    receipt: Receipt


class Uncertain(Record, frozen=True, kw_only=True):
    """The publisher heard of a failure: the event is stored, or it is not."""

    offer: int


class Refused(Record, frozen=True, kw_only=True):
    """The publisher was told that nothing was stored."""

    offer: int


class Made(NamedTuple):
    """A delivery that an append, a backfill or the like made, by a version of a rule or none."""

    event_id: EventId
    destination: str
    id: DeliveryId
    rule: str = ""

    @property
    def recipient(self) -> str:
        """The destination, by the rule that leads there if one does."""
        return recipient(self.destination, self.rule)


class Call(Record, frozen=True, kw_only=True):
    """The store has carried out a call and answered; `made` are the deliveries it made.

    `since` is when its transaction began, where others may have committed since then.
    """

    now: datetime
    method: str
    given: dict[str, Any]
    answer: Any
    made: tuple[Made, ...] = ()
    since: float | None = None


class Backfilled(Record, frozen=True, kw_only=True):
    """A destination was given every event of the log that it wants and never had."""

    destination: str


class Begun(Record, frozen=True, kw_only=True):
    """A destination was sent a delivery."""

    machine: str
    leased: Leased


class Ended(Record, frozen=True, kw_only=True):
    """The destination has answered: succeeded, transient, terminal, throttled, snooze or cancel."""

    lease: Lease
    outcome: str


class Born(Record, frozen=True, kw_only=True):
    """A worker begins its life in a process."""

    worker: str
    machine: str


class Died(Record, frozen=True, kw_only=True):
    """A process is gone, without a word."""

    machine: str


class Silenced(Record, frozen=True, kw_only=True):
    """A process may not be heard of for a while, though it lives."""

    machine: str
    why: str


class ClockSet(Record, frozen=True, kw_only=True):
    """The clock of the store was set; until then it came as far as `was`."""

    was: datetime


class Stopping(Record, frozen=True, kw_only=True):
    """A worker was asked to stop, and has so many seconds for it."""

    worker: str
    within: float


class Stopped(Record, frozen=True, kw_only=True):
    """A worker has stopped."""

    worker: str


class Healed(Record, frozen=True, kw_only=True):
    """From now on nothing goes wrong any more, and all must settle before `bound`."""

    bound: float


class Looked(Record, frozen=True, kw_only=True):
    """Everything there is in the store, in one consistent reading.

    `stuck` is what the store itself finds to wait for nobody, and `miscounts` what it keeps
    other counts of than there are. `is_final` says that no work is
    under way and none must be left.
    """

    now: datetime
    deliveries: tuple[Delivery, ...]
    events: tuple[Event[msgspec.Raw], ...]
    figures: Figures
    audit: tuple[AuditEntry, ...] = ()
    replays: tuple[Replay, ...] = ()
    stuck: tuple[DeliveryId, ...] = ()
    miscounts: tuple[Miscount, ...] = ()
    is_final: bool = False


class Read(Record, frozen=True, kw_only=True):
    """Somebody who follows the log was given an event of it."""

    position: LogPosition
    event_id: EventId
    key: str | None = None
    version: int | None = None


class Left(Record, frozen=True, kw_only=True):
    """What a process that stopped in good order has left behind."""

    machine: str
    tasks: int


class GivenUp(Record, frozen=True, kw_only=True):
    """A person may have decided that a projection is never to have an event."""

    projection: str
    event_id: EventId


class Wanted(NamedTuple):
    """An event that a projection wants, where it is in the log."""

    position: LogPosition
    event_id: EventId
    key: str | None


class Modelled(Record, frozen=True, kw_only=True):
    """A read model beside the log, in one consistent reading.

    `applied` are the events that it was made of, one after the other; `handed_over` those that
    became deliveries, and `unfinished` those of them that still are to come or to be seen to.
    `keeps_order` says that no event of a key passes an earlier one, `is_reset` that the model is
    still the one before a reset.
    """

    projection: str
    keeps_order: bool
    wanted: tuple[Wanted, ...]
    applied: tuple[EventId, ...]
    handed_over: frozenset[EventId]
    unfinished: frozenset[EventId]
    reached: tuple[LogPosition, ...]
    """How far each partition is."""
    is_reset: bool = False
    is_told_caught_up: bool = False
    is_final: bool = False

    def is_past(self, one: Wanted) -> bool:
        """Tell whether the checkpoint of its partition is past an event."""
        partition = partition_of(one.key, one.event_id, len(self.reached))
        return one.position <= self.reached[partition]


class Served(Record, frozen=True, kw_only=True):
    """Of which events readers of a projection have the read model, whichever version that is."""

    projection: str
    events: frozenset[EventId]


class Intended(Record, frozen=True, kw_only=True):
    """A person is about to change services and rules, as the entry in the audit log will say.

    `sets` are documents as they are to be, by kind and name, `None` what is to go; `alters` are
    keys of documents, `None` what is to be taken out. The rest stays, unless it `replaces` all.
    """

    why: str
    sets: dict[tuple[str, str], dict[str, Any] | None] = {}
    alters: dict[tuple[str, str], dict[str, Any]] = {}
    replaces: bool = False
    leaves_waiting: bool = False


class Requested(Record, frozen=True, kw_only=True):
    """A service was sent a request: where to, with which id, and what was in it."""

    machine: str
    leased: Leased
    url: str
    message_id: str
    body: bytes


class Hampered(Record, frozen=True, kw_only=True):
    """Until then a process may not hear of what has changed; all of them if it has no name."""

    machine: str
    until: float


class Tracked(Record, frozen=True, kw_only=True):
    """A process has tracked an event; each life of a process has a name of its own."""

    life: str
    event_id: EventId
    event_type: str
    key: str | None


class Arrived(Record, frozen=True, kw_only=True):
    """A destination has taken an event that was tracked."""

    destination: str
    event_id: EventId


class Counted(Record, frozen=True, kw_only=True):
    """What the books of a life say at its end, whichever that was.

    `is_exact` says that nothing has happened that may have the store know what was counted as
    dropped, and `is_once` that nothing may have had a destination be given something twice.
    """

    life: str
    tracked: int
    waiting: int
    dropped: int
    is_killed: bool
    is_exact: bool
    is_once: bool
