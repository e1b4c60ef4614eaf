"""Events: what happened, as it was published."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, NewType, TypedDict, TypeVar

import msgspec

from redrive.errors import ConfigurationError, UsageError, not_found, refuse_unknown
from redrive.model.checks import check_instant, check_text
from redrive.model.duration import Duration, duration

__all__ = [
    "DEFAULT_GENERATION",
    "SEALED",
    "UNREADABLE",
    "Erased",
    "Event",
    "EventAttributes",
    "EventId",
    "NewEvent",
    "Receipt",
    "Severity",
    "check_priority",
    "new_event",
]

EventId = NewType("EventId", str)
T = TypeVar("T")

DEFAULT_GENERATION = "default"
UNREADABLE = "redrive-unreadable"
"""The header of an event that stands in for one whose document cannot be read, and says why."""
SEALED = "redrive-sealed"
"""The header of an event that stands in for one that cannot be decrypted here, and says why."""

_LONGEST_NAME = 200
_LONGEST_HEADER = 8_000
_LONGEST_SPAN = timedelta(days=365 * 1000)
_LONGEST_UNIQUE = timedelta(days=30)
_PRIORITIES = range(-100, 101)
_MOST_HEADERS = 64_000
_TYPE_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Severity(StrEnum):
    """How serious an event is, for those who filter by it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event still to be published; `publish_many` takes these.

    `due` delays the first attempt, `deadline` is when trying stops. `key` is what the event is
    about: an ordered destination keeps the order of each key. `expected_version` is how many
    events the key must have had before this one; 0 says that it must be new. `to` names the
    destinations that get it, whatever their patterns say. With `unique_for` it is not stored if an
    event with the same `unique_by` was within that time; without that, one that says the same.
    """

    type: str
    payload: Any = None
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    idempotency_key: str | None = None
    headers: dict[str, str] = {}
    severity: Severity = Severity.INFO
    priority: int = 0
    generation: str | None = None
    occurred_at: datetime | None = None
    deadline: datetime | None = None
    due: datetime | None = None
    expected_version: int | None = None
    to: str | Sequence[str] | None = None
    unique_for: Duration | None = None
    unique_by: str | None = None

    def __post_init__(self) -> None:
        # In bulk this is most of what publishing costs, so what was left out is not looked at.
        _check_type(self.type)
        if self.source != "":
            check_text("source", self.source)
        if self.key is not None:
            check_text("key", self.key)
        if self.tenant is not None:
            check_text("tenant", self.tenant)
        if self.idempotency_key is not None:
            _check_telling("idempotency_key", self.idempotency_key)
        if self.generation is not None:
            _check_telling("generation", self.generation)
        if not (self.occurred_at is None and self.deadline is None and self.due is None):
            self._bring_to_utc()
        if self.headers or type(self.headers) is not dict:
            _check_headers(self.headers)
        if type(self.severity) is not Severity and self.severity not in tuple(Severity):
            raise ConfigurationError(
                f"severity is {self.severity!r}; it is one of {', '.join(Severity)}."
            )
        check_priority(self.priority)
        if not (
            self.expected_version is None
            and self.to is None
            and self.unique_for is None
            and self.unique_by is None
        ):
            self._check_aim()

    def _check_aim(self) -> None:
        if self.expected_version is not None:
            _check_expectation(self.expected_version, self.key)
        if self.to is not None:
            msgspec.structs.force_setattr(self, "to", _read_to(self.to))
        if not (self.unique_for is None and self.unique_by is None):
            span = _read_unique(self.unique_for, self.unique_by)
            msgspec.structs.force_setattr(self, "unique_for", span)

    def _bring_to_utc(self) -> None:
        for name in ("occurred_at", "deadline", "due"):
            if getattr(self, name) is not None:
                instant = check_instant(name, getattr(self, name))
                msgspec.structs.force_setattr(self, name, instant)


class EventAttributes(TypedDict, total=False):
    """What `publish` takes beside the type and the payload.

    `due` and `deadline` are instants, or durations from now such as `"5m"`.
    """

    key: str | None
    """What the event is about, such as an order's number; ordered destinations keep its order."""
    tenant: str | None
    """The customer it belongs to; tenants take turns, and may have limits."""
    source: str
    """Where it comes from; an idempotency key counts within its source."""
    idempotency_key: str | None
    """A second publish with the same key stores nothing."""
    headers: dict[str, str]
    """Text to text, for tracing and the like; HTTP destinations may forward them."""
    severity: Severity
    """How serious it is, for those who filter by it."""
    priority: int
    """From -100 to 100; of what is due of a tenant, the higher goes first."""
    generation: str | None
    """Which generation of workers delivers it; that of the settings by default."""
    occurred_at: datetime | None
    """When it happened; the time of the publish by default."""
    deadline: datetime | Duration | None
    """When trying stops: an instant, or a duration from now such as `"1d"`."""
    due: datetime | Duration | None
    """When the first attempt is made: an instant, or a duration from now such as `"5m"`."""
    expected_version: int | None
    """How many events its key must have had before; 0 if the key must be new."""
    to: str | Sequence[str] | None
    """The destinations it goes to, by name, instead of those whose patterns fit."""
    unique_for: Duration | None
    """For how long another publish of the same stores nothing, such as `"10m"`."""
    unique_by: str | None
    """The name of what is the same, with `unique_for`; else its type, key, tenant and payload."""


_ATTRIBUTES = EventAttributes.__annotations__.keys()


def new_event(
    event_type: str, payload: object, attributes: EventAttributes, *, now: datetime
) -> NewEvent:
    """Make an event of what `publish` was given; durations count from `now`."""
    if not attributes.keys() <= _ATTRIBUTES:
        refuse_unknown(attributes, _ATTRIBUTES, what="event attribute")
    given: dict[str, Any] = dict(attributes)
    for name in ("due", "deadline"):
        value = given.get(name)
        if value is not None and not isinstance(value, datetime):
            span = duration(value, name=name, longest=timedelta.max)
            given[name] = now + min(span, _LONGEST_SPAN)
    return NewEvent(type=event_type, payload=payload, **given)


class Erased(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When the payload of an event was erased.

    `digest` is of what it said, so that a repeated publish is still known for one; it is empty
    where no idempotency key asks for that.
    """

    at: datetime
    digest: str = ""


class Event(msgspec.Struct, Generic[T], frozen=True, kw_only=True, omit_defaults=True):
    """A published event.

    Handlers see the payload decoded, as `Event[dict]` or as the type they ask for; stores keep
    it as the JSON it was published with, as `Event[msgspec.Raw]`.
    """

    id: EventId
    type: str
    payload: T
    published_at: datetime
    occurred_at: datetime
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    idempotency_key: str | None = None
    headers: dict[str, str] = {}
    severity: Severity = Severity.INFO
    priority: int = 0
    generation: str = DEFAULT_GENERATION
    deadline: datetime | None = None
    due: datetime | None = None
    to: tuple[str, ...] = ()
    """The destinations that it was published to by name; empty when patterns decide."""
    erased: Erased | None = None
    """Says that its payload, `None` since then, was erased, and when."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What `publish` returns once the event and its deliveries are durable.

    `destinations` is empty for an event that no destination wants: it is in the log, for the
    projections among its `readers`, or for nobody.
    `is_duplicate` says that an earlier publish with the same idempotency key, or within the time
    that it is to be unique, stored `event_id`, and this one nothing.
    `version` is how many events its key has had, this one included; `None` without a key.
    `is_journaled` says that the store did not answer, and the journal of this machine has it.
    """

    event_id: EventId
    destinations: tuple[str, ...] = ()
    is_duplicate: bool = False
    version: int | None = None
    is_journaled: bool = False

    @property
    def readers(self) -> tuple[str, ...]:
        """The projections that read the event, where no destination wants it."""
        readers: tuple[str, ...] = self.__dict__.get("readers", ())
        return readers

    @property
    def is_routed(self) -> bool:
        """Whether at least one destination wants the event, or a projection reads it."""
        return bool(self.destinations or self.readers)

    async def result(self, destination: str, *, timeout: Duration = "30s") -> Any:  # noqa: ANN401, ASYNC109 - JSON; it is part of what is asked
        """Wait until it is delivered there, and return what the handler returned.

        The destination needs `keep_result=True`; without it, and for nothing, it is `None`. A
        delivery that fails raises `DeliveryFailedError`, one that does not end in time
        `ResultTimeoutError`. Within the transaction that it was published in it is refused.
        """
        if destination not in self.destinations:
            raise not_found(destination, self.destinations, what="destination of this event")
        wait = self.__dict__.get("wait")
        if wait is None:
            raise UsageError(
                "This receipt does not know its app; ask app.operations.result(event_id, "
                "destination), or app.sync.result(receipt, destination) without asyncio."
            )
        return await wait(self.event_id, destination, timeout=timeout)


@lru_cache(maxsize=1_000)
def _is_type(value: str) -> bool:
    return (
        0 < len(value) <= _LONGEST_NAME
        and _TYPE_LETTERS.issuperset(value)
        and all(value.split("."))
    )


def _check_type(value: object) -> None:
    if not isinstance(value, str) or not _is_type(value):
        raise ConfigurationError(
            f"The event type is {value!r}; it is dotted words of letters, digits, '_' and '-', "
            'at most 200 characters, such as "order.paid".'
        )


def _check_telling(name: str, value: str) -> None:
    if not check_text(name, value).strip():
        raise ConfigurationError(
            f"{name} is blank, so different events would pass for one; "
            "write what tells this one from others, or leave it out."
        )


def _check_expectation(expected: object, key: str | None) -> None:
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
        raise ConfigurationError(
            f"expected_version is {expected!r}; it is how many events the key has had so far: "
            "0 for a key that must be new, else the version of the last receipt."
        )
    if key is None:
        raise ConfigurationError(
            f"expected_version is {expected}, but the event has no key; versions are counted for "
            "each key, so write key= as well."
        )


def _read_unique(span: object, by: str | None) -> timedelta:
    if by is not None:
        _check_telling("unique_by", by)
    if span is None:
        raise ConfigurationError(
            f"unique_by is {by!r}, and nothing says for how long; write unique_for as well, such "
            'as unique_for="10m", or idempotency_key for what is never to be stored twice.'
        )
    read = duration(span, name="unique_for", longest=_LONGEST_UNIQUE)
    if not read:
        raise ConfigurationError(
            "unique_for is 0s, so nothing would be a duplicate; write for how long, such as "
            '"10m", or leave it out.'
        )
    return read


def _read_to(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise ConfigurationError(
            f"to is {value!r}; it is the name of a destination, or a list of names, "
            'such as to="billing" or to=["billing", "crm"].'
        )
    if not names:
        raise ConfigurationError(
            "to names no destination, so nobody would get the event; name at least one, or leave "
            "it out to have patterns decide."
        )
    return tuple(sorted(set(names)))


def _check_headers(headers: object) -> None:
    if not isinstance(headers, dict):
        raise ConfigurationError(
            f"headers is {headers!r}; it is a dict of text to text, "
            'such as {"traceparent": "00-…"}.'
        )
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigurationError(
                f"The header {name!r} has the value {value!r}; headers map text to text."
            )
        check_text("The name of a header", name)
        check_text(f"The header {name!r}", value, longest=_LONGEST_HEADER)
    if sum(len(name) + len(value) for name, value in headers.items()) > _MOST_HEADERS:
        raise ConfigurationError(
            f"The headers are longer than {_MOST_HEADERS:,} characters together; "
            "put what is large into the payload."
        )


def check_priority(value: object) -> int:
    """Return a priority."""
    if type(value) is not int or value not in _PRIORITIES:
        raise ConfigurationError(
            f"priority is {value!r}; it is a whole number from -100 to 100, "
            "and the higher one goes first."
        )
    return value
