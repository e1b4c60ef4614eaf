"""Answers: what the API says beside the values of the operations themselves."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from redrive.model.access import Token
from redrive.model.audit import AuditEntry
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.edit import Change
from redrive.model.encryption import Encryption
from redrive.model.event import Event, Receipt
from redrive.model.gate import BreakerChange, GateFigures
from redrive.model.request_log import LoggedRequest
from redrive.model.rule import Stored
from redrive.model.secret import Secret
from redrive.model.trend import Trend
from redrive.operations import AutomaticReplay, DeliveryState, EventStory, ScheduleFigures, Story
from redrive.store import (
    Finding,
    Group,
    KeptVersion,
    LaneFigures,
    LoggedEvent,
    Miscount,
    ProjectionFigures,
    Replay,
    TenantFigures,
)

__all__ = [
    "Acted",
    "AuditEntries",
    "AutoReplays",
    "BreakerChanges",
    "Changed",
    "Changes",
    "Conditions",
    "Counted",
    "Documents",
    "Encrypted",
    "Findings",
    "Gates",
    "Groups",
    "Lanes",
    "LogEntry",
    "LogStretch",
    "LoggedRequests",
    "Miscounts",
    "Projections",
    "Reached",
    "Receipts",
    "Replays",
    "ResultState",
    "ResultTold",
    "Schedules",
    "SchemaVersion",
    "Stuck",
    "TenantList",
    "Tokens",
    "TrendList",
    "Versions",
    "readable",
    "readable_event",
    "without_payload",
    "without_payloads",
]

S = TypeVar("S", Story, EventStory)
_HIDDEN = msgspec.Raw(b"null")


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The deliveries that changed, and how the others stand that were left alone."""

    changed: list[DeliveryId]
    left_alone: dict[str, list[int]] = {}


class Acted(msgspec.Struct, frozen=True):
    """Whether that changed anything: a pause of what is paused does not."""

    changed: bool


class Counted(msgspec.Struct, frozen=True):
    """How many."""

    count: int


class LoggedRequests(msgspec.Struct, frozen=True):
    """The last requests to a destination, the latest first."""

    requests: tuple[LoggedRequest, ...]


class Documents(msgspec.Struct, frozen=True):
    """Documents of services or rules that are in force."""

    documents: tuple[Stored, ...]


class Versions(msgspec.Struct, frozen=True):
    """Versions of a service or a rule, the latest first."""

    versions: tuple[KeptVersion, ...]


class SchemaVersion(msgspec.Struct, frozen=True):
    """The version of the store's schema."""

    schema_version: int


class Receipts(msgspec.Struct, frozen=True):
    """One receipt for each event, in the same order."""

    receipts: Sequence[Receipt]


class Conditions(msgspec.Struct, frozen=True):
    """How deliveries stand, by their numbers; one that is not there is left out."""

    conditions: dict[int, DeliveryState]


class Findings(msgspec.Struct, frozen=True):
    """What was looked at, how it is, and what to do about it."""

    findings: Sequence[Finding]


class Groups(msgspec.Struct, frozen=True):
    """Dead letters by what they failed of, the largest group first."""

    groups: Sequence[Group]


class Gates(msgspec.Struct, frozen=True):
    """The gates of destinations."""

    gates: Sequence[GateFigures]


class Lanes(msgspec.Struct, frozen=True):
    """Keys that wait behind a dead letter, the longest first."""

    lanes: Sequence[LaneFigures]


class TrendList(msgspec.Struct, frozen=True):
    """What became of deliveries over time."""

    trends: Sequence[Trend]


class TenantList(msgspec.Struct, frozen=True):
    """Tenants, those with the most pending first."""

    tenants: Sequence[TenantFigures]


class Tokens(msgspec.Struct, frozen=True):
    """Access tokens, the latest first, and where the next page begins."""

    tokens: Sequence[Token]
    next_cursor: str | None = None


class Secrets(msgspec.Struct, frozen=True):
    """Secrets, by name; never what they are."""

    secrets: Sequence[Secret]


class Encrypted(msgspec.Struct, frozen=True):
    """By which key payloads are kept, and how far that is; nothing if they never were encrypted."""

    encryption: Encryption | None


class Schedules(msgspec.Struct, frozen=True):
    """Schedules, by name."""

    schedules: Sequence[ScheduleFigures]


class Projections(msgspec.Struct, frozen=True):
    """Projections, by name, and how far each is."""

    projections: Sequence[ProjectionFigures]


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a projection has applied an event; else `detail` says where it stands."""

    reached: bool
    detail: str = ""


class Miscounts(msgspec.Struct, frozen=True):
    """Counts that were wrong."""

    miscounts: Sequence[Miscount]


class Stuck(msgspec.Struct, frozen=True):
    """Deliveries that wait behind nobody."""

    stuck: Sequence[DeliveryId]


class Changes(msgspec.Struct, frozen=True):
    """What an edit would change."""

    changes: Sequence[Change]


class BreakerChanges(msgspec.Struct, frozen=True):
    """The breakers that were closed."""

    changes: Sequence[BreakerChange]


class AutoReplays(msgspec.Struct, frozen=True):
    """Destinations that are replayed by themselves."""

    auto_replays: Sequence[AutomaticReplay]


class AuditEntries(msgspec.Struct, frozen=True):
    """Acts of the past, the latest first, and where the next page begins."""

    entries: Sequence[AuditEntry]
    next_cursor: str | None = None


class Replays(msgspec.Struct, frozen=True):
    """Replays of many, the latest first, and where the next page begins."""

    replays: Sequence[Replay]
    next_cursor: str | None = None


class ResultState(StrEnum):
    """How far a delivery is whose result somebody waits for."""

    DELIVERED = "delivered"
    FAILED = "failed"
    WAITING = "waiting"


class ResultTold(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler returned, if it has; else `detail` says how the delivery stands."""

    state: ResultState
    result: Any = None
    detail: str = ""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the log, its position, and its version within its key."""

    position: str
    event: Event[msgspec.Raw]
    version: int | None = None

    @classmethod
    def of(cls, logged: LoggedEvent, *, with_payload: bool) -> LogEntry:
        """Return what is told of an event."""
        event = logged.event
        shown = readable_event(event) if with_payload else _hidden(event)
        return cls(position=str(logged.position), event=shown, version=logged.version)


class LogStretch(msgspec.Struct, frozen=True, kw_only=True):
    """Events in the order of the log; `next_cursor` is where to read on, now or later."""

    events: Sequence[LogEntry]
    next_cursor: str


def without_payload(story: Story) -> Story:
    """Return a story without what was carried, sent and answered."""
    return msgspec.structs.replace(
        story, event=_hidden(story.event), delivery=_hidden_delivery(story.delivery)
    )


def without_payloads(told: EventStory) -> EventStory:
    """Return the same of an event and all of its deliveries."""
    return msgspec.structs.replace(
        told,
        event=_hidden(told.event),
        stories=tuple(without_payload(one) for one in told.stories),
    )


def readable(story: Story) -> Story:
    """Return a story whose payloads are JSON, be it as text where no reader could decode them."""
    delivery = story.delivery
    if delivery.payload is not None:
        delivery = msgspec.structs.replace(delivery, payload=_json(delivery.payload))
    return msgspec.structs.replace(story, event=readable_event(story.event), delivery=delivery)


def readable_event(event: Event[msgspec.Raw]) -> Event[msgspec.Raw]:
    """Return an event whose payload is JSON."""
    return msgspec.structs.replace(event, payload=_json(event.payload))


def _json(payload: msgspec.Raw) -> msgspec.Raw:
    try:
        msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        text = bytes(payload).decode(errors="replace")
        return msgspec.Raw(msgspec.json.encode(text))
    return payload


def _hidden(event: Event[msgspec.Raw]) -> Event[msgspec.Raw]:
    return msgspec.structs.replace(event, payload=_HIDDEN)


def _hidden_delivery(delivery: Delivery) -> Delivery:
    edits = tuple(msgspec.structs.replace(one, changes=()) for one in delivery.edits)
    return msgspec.structs.replace(delivery, payload=None, exchange=None, edits=edits)
