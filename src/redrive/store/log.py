"""What a store promises about the log, and about who wants what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId, Receipt
from redrive.model.gate import Override
from redrive.model.position import LOG_START, LogPosition

__all__ = [
    "PUBLISHER",
    "Append",
    "AppendResult",
    "Appended",
    "CaughtUp",
    "Conflict",
    "Declarer",
    "Entry",
    "EventLog",
    "Later",
    "LogPage",
    "LoggedEvent",
    "Redeclared",
    "Registered",
    "Registry",
    "RoutesChanged",
    "Unique",
    "VersionConflict",
]


class Unique(msgspec.Struct, frozen=True):
    """For how long nothing is stored that is the same: has this name, or else says the same."""

    span: timedelta
    by: str | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event to append, and the destinations that want it.

    `expected_version` is how many events its key must have had before, if that matters.
    """

    event: Event[msgspec.Raw]
    destinations: tuple[str, ...]
    expected_version: int | None = None
    unique: Unique | None = None


class Conflict(msgspec.Struct, frozen=True):
    """The idempotency key was used before, by this event, with another body."""

    event_id: EventId


class VersionConflict(msgspec.Struct, frozen=True):
    """The key of the event was at another version than the entry expected."""

    actual: int


AppendResult = Receipt | Conflict | VersionConflict
Later = asyncio.Future[AppendResult]
"""The result of an entry that has to wait for somebody else's transaction."""


class Appended(msgspec.Struct, frozen=True):
    """One result per entry, in the same order.

    Without `all_or_nothing`, some may come later; the others are stored, and wait for nobody.
    """

    results: tuple[AppendResult | Later, ...]


class RoutesChanged(msgspec.Struct, frozen=True):
    """Nothing was stored: the entries were routed by another version than the current one."""

    routes: Routes
    """The current ones; within a transaction of the caller's, those which that one sees."""


Append = Appended | RoutesChanged


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries were added to events that missed them, and whether to look on."""

    added: int = 0
    has_more: bool = False


class LoggedEvent(msgspec.Struct, frozen=True):
    """An event, its position in the log, and its version within its key, if it has one.

    A store gives its payload as the JSON that it is; `app.log` gives what its reader asked for.
    """

    position: LogPosition
    event: Event[Any]
    version: int | None = None

    @property
    def payload(self) -> Any:  # noqa: ANN401 - what its reader asked for
        """The payload, decoded."""
        payload = self.event.payload
        return msgspec.json.decode(payload) if isinstance(payload, msgspec.Raw) else payload


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the log: its events that fit, and where it ends.

    Everything up to `reached` was looked at, so that it is where to read on from. `is_end` says
    that nothing behind it could be read at that moment.
    """

    events: tuple[LoggedEvent, ...]
    reached: LogPosition
    is_end: bool


class EventLog(Protocol):
    """Events, each at a position that it keeps; the events of a key in the order of their commits.

    Each event of a key has the next version, beginning with 1; no version is left out or given
    twice, and the count goes on when events have gone.
    """

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
        answer may ask again. So does one that is to be `unique`, while an event of its source is
        that was stored as the same, for the time that one asked for; it gets the receipt of that,
        marked as a duplicate. Only then does `expected_version` count: if the key is at another
        version, entries of this batch before it included, the entry stores nothing and gets a
        `VersionConflict`. With `all_or_nothing` one conflict keeps the whole batch out.

        `within` is a transaction of the caller's: the write joins it, and is durable when the
        caller commits. A store that cannot join it raises `TransactionError`.
        """

    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        partition: int = 0,
        partitions: int = 1,
    ) -> LogPage:
        """Look at so many events behind a position, and return those that fit, in log order.

        A reader that always goes on from where the last page ends sees every committed event once,
        whatever the order of the commits: what commits late never gets a position before one that
        was read. The events of a key come in the order of their versions. A position may be read on
        from when its event has gone. An event fits if its type fits one of the patterns; without
        any, all of them do. Of several partitions only those of one fit, by `partition_of`.
        """

    async def read_key(
        self, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        """Return the events of a key whose versions are greater than one, in their order.

        Whatever is committed is returned, also where others have yet to commit before a reader of
        the whole log may see it. What it costs depends on this key alone.
        """

    async def end_of_log(self) -> LogPosition:
        """Return where the log ends: what can be read is before it, what comes later behind it."""

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        """Return one event."""


class Declarer(msgspec.Struct, frozen=True, kw_only=True):
    """Who brings declarations: the worker, if it is one, and the machine it runs on.

    A worker is live while it was heard of within its `lease`.
    """

    worker: str = ""
    host: str = ""
    lease: timedelta = timedelta(seconds=15)

    @property
    def why(self) -> str:
        """What the audit log says of a change it has brought."""
        who = f"worker {self.worker}" if self.worker else "a process that publishes or operates"
        return f"declared by {who}" + (f" on {self.host}" if self.host else "")


PUBLISHER = Declarer()
"""Somebody who only publishes or operates, and brings what they add."""


class Redeclared(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a destination that is in force has changed, and how."""

    destination: str
    difference: str


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of declarations: the routes from now on, and what has changed of those there were.

    `others` are the destinations of which another declaration than the one brought is in force,
    or that were removed. A worker is told the `overrides` there are, by their destinations.
    """

    routes: Routes
    changes: tuple[Redeclared, ...] = ()
    others: tuple[str, ...] = ()
    overrides: Mapping[str, Override] = MappingProxyType({})

    @property
    def version(self) -> int:
        """The version of the routes."""
        return self.routes.version


class Registry(Protocol):
    """The destinations and what they want, for publishers that have none of the handlers' code.

    Of each destination one declaration is in force, which all workers follow.
    """

    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        """Bring declarations; `policies.declaring` says what becomes of each.

        Each change of a destination leaves an audit entry, and so do all that are new together,
        unless they are the first ever. The version grows only when something differs. A worker
        brings all it declares, which is remembered for as long as the worker is; with `again`
        it only has these looked at once more.
        """

    async def catch_up(self) -> CaughtUp:
        """Give events the deliveries they miss because they were published by older routes.

        Such an event was stored in a transaction that did not see a change of the routes, and
        ended after it. It gets each delivery once, as if it were published now. Events whose
        transactions ended before the change are left alone; those are for a backfill. Looks at a
        stretch of the log at a time, and waits for nobody.
        """

    async def routes(self) -> Routes:
        """Return all destinations as of the current version, which is 0 while there are none."""
