"""What a store promises about the log, and about who wants what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId, Receipt

__all__ = [
    "Append",
    "Appended",
    "Conflict",
    "Entry",
    "EventLog",
    "LoggedEvent",
    "Registry",
    "RoutesChanged",
]


class Entry(msgspec.Struct, frozen=True):
    """An event to append, and the destinations that want it."""

    event: Event[msgspec.Raw]
    destinations: tuple[str, ...]


class Conflict(msgspec.Struct, frozen=True):
    """The idempotency key was used before, by this event, with another body."""

    event_id: EventId


class Appended(msgspec.Struct, frozen=True):
    """One result per entry, in the same order."""

    results: tuple[Receipt | Conflict, ...]


class RoutesChanged(msgspec.Struct, frozen=True):
    """Nothing was stored: the entries were routed by another version than the current one."""

    routes: Routes
    """The current ones; within a transaction of the caller's, those which that one sees."""


Append = Appended | RoutesChanged


class LoggedEvent(msgspec.Struct, frozen=True):
    """An event and its position in the log; positions grow in commit order."""

    position: int
    event: Event[msgspec.Raw]


class EventLog(Protocol):
    """Events in the order of their commits."""

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        """Store each event with one pending delivery per destination.

        An entry whose `(source, idempotency_key)` is known stores nothing: with the same body it
        gets the first receipt, marked as a duplicate, with another body a `Conflict`. An event id
        that is known already stores nothing and gets its receipt: a caller that never heard the
        answer may ask again. With `all_or_nothing` one conflict keeps the whole batch out.

        `within` is a transaction of the caller's: the write joins it, and is durable when the
        caller commits. A store that cannot join it raises `TransactionError`.
        """

    async def read_events(self, *, after: int = 0, limit: int = 100) -> Sequence[LoggedEvent]:
        """Return the events behind a position, in commit order."""

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        """Return one event."""


class Registry(Protocol):
    """The destinations and what they want, for publishers that have none of the handlers' code."""

    async def register(self, destinations: Sequence[Destination]) -> Routes:
        """Add or change destinations; the version grows only when something differs."""

    async def routes(self) -> Routes:
        """Return all destinations as of the current version, which is 0 while there are none."""
