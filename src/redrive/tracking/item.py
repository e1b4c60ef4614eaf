"""An event in the buffer, and one on its way to several destinations."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.model.event import Event, EventId, Severity
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.tracking.figures import End

__all__ = ["Flight", "Item"]

_ORDER = (End.SENT, End.STORED, End.SPILLED, End.DROPPED)


class Item(msgspec.Struct, gc=False):
    """A tracked event, made as quickly as possible; `number` grows with each.

    With a `reason` it is not to be sent, but to be kept as a dead letter.
    """

    number: int
    id: str
    type: str
    payload: bytes
    at: datetime
    severity: Severity
    key: str | None = None
    tenant: str | None = None
    to: tuple[str, ...] = ()
    source: str = ""
    headers: dict[str, str] = {}
    generation: str = ""
    reason: FailureReason | None = None
    fault: Fault | None = None

    def event(self) -> Event[msgspec.Raw]:
        """Return it as it is published."""
        return Event(
            id=EventId(self.id),
            type=self.type,
            payload=msgspec.Raw(self.payload),
            published_at=self.at,
            occurred_at=self.at,
            key=self.key,
            tenant=self.tenant,
            source=self.source,
            headers=self.headers,
            severity=self.severity,
            generation=self.generation,
            to=self.to,
        )


class Flight:
    """An event on its way: where it has arrived, and which parts of it have not ended."""

    __slots__ = ("arrived", "end", "event", "is_kept", "names", "number", "open", "why")

    def __init__(self, number: int, event: Event[msgspec.Raw], names: tuple[str, ...]) -> None:
        self.number = number
        self.event = event
        self.names = names
        self.open = dict.fromkeys(names)
        self.arrived: list[str] = []
        self.is_kept = False
        self.end = End.SENT
        self.why = ""

    def meet(self, end: End, *, why: str = "") -> None:
        """Note what a part of it met, if that is worse than what others did."""
        if _ORDER.index(end) > _ORDER.index(self.end):
            self.end, self.why = end, why
