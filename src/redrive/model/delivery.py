"""Deliveries: one event on its way to one destination, and what happened on that way."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NewType

import msgspec

from redrive.model.edit import Edit
from redrive.model.event import SEALED, UNREADABLE, Event, EventId
from redrive.model.outcome import Addressees, Exchange, Fault
from redrive.model.recipient import recipient
from redrive.model.settlement import FailureReason

__all__ = [
    "LEGAL_TRANSITIONS",
    "SUSPECT_AFTER",
    "Attempt",
    "Cycle",
    "Delivery",
    "DeliveryId",
    "Kind",
    "Lease",
    "Leased",
    "Resolution",
    "Status",
    "is_legal",
]

DeliveryId = NewType("DeliveryId", int)

SUSPECT_AFTER = 2
"""From this many crashes on a delivery is a suspect, and is only run alone."""


class Status(StrEnum):
    """Where a delivery is in its life."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    DELIVERED = "delivered"
    FAILED = "failed"


LEGAL_TRANSITIONS: frozenset[tuple[Status, Status]] = frozenset(
    {
        (Status.PENDING, Status.IN_FLIGHT),  # claim
        (Status.PENDING, Status.FAILED),  # deadline, cancel, shed
        (Status.IN_FLIGHT, Status.PENDING),  # retry, snooze, release, rescue
        (Status.IN_FLIGHT, Status.DELIVERED),  # settle
        (Status.IN_FLIGHT, Status.FAILED),  # settle, crash loop
        (Status.FAILED, Status.PENDING),  # replay
    }
)


def is_legal(before: Status, after: Status) -> bool:
    """Tell whether a delivery may go from one status to the other."""
    return (before, after) in LEGAL_TRANSITIONS


class Kind(StrEnum):
    """Which of a destination's three limits the next attempt counts against."""

    FIRST = "first"
    RETRY = "retry"
    REPLAY = "replay"


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The right to settle one delivery; the token fences off every earlier holder."""

    delivery_id: DeliveryId
    token: int


class Leased(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A claimed delivery, ready to be attempted.

    `attempt` counts the tries of this cycle and already includes this one. `is_alone` says that
    it is suspected of crashing workers and must be run with nothing beside it. `is_probe` says that
    it passes a half-open breaker, and `is_known` that it failed as a probe before, and that the
    destination has answered others since. `cycles` counts the earlier cycles that are remembered.
    `rule` is the version of the rule that gave it, such as `orders@3`, empty if none did.
    Stores write it as a JSON array, so new fields go at the end.
    """

    lease: Lease
    destination: str
    event: Event[msgspec.Raw]
    attempt: int
    kind: Kind
    claimed_at: datetime
    enqueued_at: datetime
    snoozes: int = 0
    crashes: int = 0
    last_crash_at: datetime | None = None
    is_alone: bool = False
    breaker_generation: int = 0
    is_probe: bool = False
    is_known: bool = False
    cycles: int = 0
    deadline: datetime | None = None
    rule: str = ""

    @property
    def unreadable(self) -> str:
        """Why what is stored of it cannot be read, and so not be carried; empty if it can."""
        headers = self.event.headers
        return headers.get(UNREADABLE) or headers.get(SEALED, "")

    @property
    def is_sealed(self) -> bool:
        """Whether it cannot be decrypted here, and has to wait for its key."""
        return SEALED in self.event.headers


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed or postponed try, as the story of a delivery tells it."""

    number: int
    started_at: datetime
    ended_at: datetime
    worker: str
    result: str
    fault: Fault | None = None


class Cycle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tries between two replays, kept when the next one begins.

    `first_failed_at` outlasts the log, which keeps only the last tries.
    """

    attempts: int
    reason: FailureReason
    fault: Fault
    failed_at: datetime
    generation: str
    replayed_at: datetime
    replayed_by: str
    first_failed_at: datetime | None = None
    log: tuple[Attempt, ...] = ()


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that was handled elsewhere: by whom, when and how."""

    by: str
    at: datetime
    why: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one delivery except its event's payload.

    `exchange` is of the last failed attempt of this cycle, or what its handler returned if that is
    kept; lists leave it out.
    `payload` is what it carries instead of its event's, once a person has edited it. `replay` is
    the replay that sent it last, and `auto_replays` how often an auto-replay did. `rule` is the
    version of the rule by which it is rendered. `addressees` are who of several has answered for
    good, over all cycles; lists leave them out too.
    """

    id: DeliveryId
    event_id: EventId
    event_type: str
    destination: str
    status: Status
    due: datetime
    enqueued_at: datetime
    generation: str
    attempts: int
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    priority: int = 0
    deadline: datetime | None = None
    kind: Kind = Kind.FIRST
    snoozes: int = 0
    crashes: int = 0
    worker: str | None = None
    lease_until: datetime | None = None
    settled_at: datetime | None = None
    reason: FailureReason | None = None
    fault: Fault | None = None
    first_failed_at: datetime | None = None
    last_failed_at: datetime | None = None
    resolution: Resolution | None = None
    behind: DeliveryId | None = None
    log: tuple[Attempt, ...] = ()
    cycles: tuple[Cycle, ...] = ()
    exchange: Exchange | None = None
    payload: msgspec.Raw | None = None
    edits: tuple[Edit, ...] = ()
    replay: int | None = None
    auto_replays: int = 0
    rule: str = ""
    addressees: Addressees | None = None

    @property
    def recipient(self) -> str:
        """The destination, by the rule that leads there if one does."""
        return recipient(self.destination, self.rule)

    @property
    def is_dead_letter(self) -> bool:
        """Failed, and nobody has resolved it yet."""
        return self.status is Status.FAILED and self.resolution is None
