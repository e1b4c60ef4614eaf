"""Letters: dead letters with everything known of them, as files carry them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_instant
from redrive.model.delivery import Attempt, Delivery, Status
from redrive.model.destination import check_destination_name
from redrive.model.event import Event, NewEvent

__all__ = ["LETTER_VERSION", "Letter"]

LETTER_VERSION = 1
"""The version of the format; it grows when an older Redrive could not read the result."""


_HIGHEST_COUNT = 2**31 - 1
_LONGEST_BODY = 2**16


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: the whole event, and its delivery with tries, cycles, fault and times.

    As JSON it is one object. Fields that a reader does not know are passed over, so that new ones
    can join.
    """

    version: int = LETTER_VERSION
    event: Event[msgspec.Raw]
    delivery: Delivery

    def __post_init__(self) -> None:
        if self.version != LETTER_VERSION:
            raise ConfigurationError(
                f"The letter has version {self.version}, and this Redrive reads version "
                f"{LETTER_VERSION}; import it with a newer one."
            )
        delivery = self.delivery
        if (
            delivery.status is not Status.FAILED
            or delivery.reason is None
            or delivery.fault is None
            or delivery.settled_at is None
        ):
            raise ConfigurationError(
                f"The delivery {delivery.id} is no dead letter: it lacks the status failed, its "
                "reason, its fault, or when it failed."
            )
        if (self.event.id, self.event.type) != (delivery.event_id, delivery.event_type):
            raise ConfigurationError(
                f"The delivery {delivery.id} is of event {delivery.event_id}, "
                f"and the letter holds event {self.event.id}."
            )

    def check(self) -> None:
        """Say what is wrong with a letter from outside; of the store's own nothing is.

        How large a payload may be is the app's to say.
        """
        event, delivery = self.event, self.delivery
        if not event.id.strip():
            raise ConfigurationError("The event has no id.")
        NewEvent(
            type=event.type,
            key=event.key,
            tenant=event.tenant,
            source=event.source,
            idempotency_key=event.idempotency_key,
            headers=event.headers,
            severity=event.severity,
            priority=event.priority,
            generation=event.generation,
        )
        NewEvent(type=event.type, priority=delivery.priority, generation=delivery.generation)
        check_destination_name(delivery.destination)
        for name, count in self._counts():
            if not 0 <= count <= _HIGHEST_COUNT:
                raise ConfigurationError(
                    f"The count {name} is {count:.3g}; it is counted from 0 to {_HIGHEST_COUNT:,}."
                )
        if (delivery.payload is None) is bool(delivery.edits):
            raise ConfigurationError(
                "A payload of its own and the edits that made it belong together; it has only one "
                "of them."
            )
        for name, instant in self._instants():
            check_instant(name, instant)
        exchange = delivery.exchange
        if exchange is not None and max(len(exchange.sent), len(exchange.body)) > _LONGEST_BODY:
            raise ConfigurationError(
                f"What was sent or answered is longer than the {_LONGEST_BODY:,} characters that "
                "are kept of it."
            )

    def _counts(self) -> Iterator[tuple[str, int]]:
        delivery = self.delivery
        for name in ("attempts", "snoozes", "crashes", "auto_replays"):
            yield name, getattr(delivery, name)
        for cycle in delivery.cycles:
            yield "attempts", cycle.attempts
        for attempt in (*delivery.log, *(one for cycle in delivery.cycles for one in cycle.log)):
            yield "number", attempt.number
        for edit in delivery.edits:
            yield "more", edit.more
        if delivery.exchange is not None:
            yield "size", delivery.exchange.size
            yield "status", delivery.exchange.status or 0

    def _instants(self) -> Iterator[tuple[str, datetime]]:
        event, delivery = self.event, self.delivery
        for name in ("published_at", "occurred_at", "deadline", "due"):
            if (instant := getattr(event, name)) is not None:
                yield name, instant
        for name in (
            *("due", "enqueued_at", "deadline", "settled_at", "first_failed_at", "last_failed_at"),
        ):
            if (instant := getattr(delivery, name)) is not None:
                yield name, instant
        yield from _instants_of(delivery.log)
        for cycle in delivery.cycles:
            if cycle.first_failed_at is not None:
                yield "first_failed_at", cycle.first_failed_at
            yield "failed_at", cycle.failed_at
            yield "replayed_at", cycle.replayed_at
            yield from _instants_of(cycle.log)
        for edit in delivery.edits:
            yield "at", edit.at
        if delivery.resolution is not None:
            yield "at", delivery.resolution.at


def _instants_of(log: tuple[Attempt, ...]) -> Iterator[tuple[str, datetime]]:
    for attempt in log:
        yield "started_at", attempt.started_at
        yield "ended_at", attempt.ended_at
