"""The port by which operations learn what documents may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from redrive.model.destination import Destination
from redrive.model.event import Event
from redrive.model.rule import Stored
from redrive.model.schedule import Schedule

__all__ = ["Decide", "Document", "Drafting", "Preview", "Previewed"]

Document = Mapping[str, object]


class Previewed(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule makes of one event: a request, or why there is none.

    `url` is where the service is, and `path` what the rule adds to it. `headers` are those of the
    rule; a service adds its own.
    """

    event_id: str
    event_type: str
    published_at: datetime
    verdict: Literal["sent", "passed by", "held"]
    why: str = ""
    method: str = ""
    url: str = ""
    path: str = ""
    headers: dict[str, str] = {}
    body: str = ""


Decide = Callable[[Event[msgspec.Raw]], bool]
"""Tells whether an event fits; raises `ConditionError` where the condition fails."""

Preview = Callable[[Event[msgspec.Raw]], Previewed]
"""Tells what a rule makes of an event."""


class Drafting(Protocol):
    """Knows what documents of services, rules, sources and schedules may say."""

    def check_service(self, name: str, document: Document) -> None:
        """Refuse what is wrong with a service."""

    def check_rule(
        self, name: str, document: Document, services: Mapping[str, Document] = ...
    ) -> str:
        """Refuse what is wrong with a rule, by the services known; return where it leads."""

    def check_source(self, name: str, document: Document) -> None:
        """Refuse what is wrong with a source."""

    def check_schedule(self, name: str, document: Document) -> None:
        """Refuse what is wrong with a schedule."""

    def schedule(self, kept: Stored) -> Schedule:
        """Return a stored schedule as workers go by it."""

    def secrets_of(self, document: Document) -> frozenset[str]:
        """Return the names of the stored secrets that a document refers to."""

    def decider(self, service: Stored, rule: Stored) -> Decide:
        """Return what tells whether a rule would give an event to its service."""

    def previewer(self, service: Stored, rule: Stored) -> Preview:
        """Return what tells what a rule makes of events, enabled or not."""

    def destination(self, service: Stored, rules: Sequence[Stored]) -> Destination:
        """Return a service with its rules as routing has it."""
