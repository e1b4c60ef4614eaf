"""What a store promises to people who look for events, and ask what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.errors import UsageError
from redrive.model.checks import check_text
from redrive.model.delivery import DeliveryId, Status
from redrive.model.event import EventId
from redrive.model.pattern import matches

__all__ = ["EventDelivery", "EventPage", "EventQuery", "EventSearch", "FoundEvent"]

_SOUGHT = ("event_id", "event_type", "key", "tenant", "source")
_LONGEST_SOUGHT = 10_000


class EventDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of an event, and how it stands."""

    id: DeliveryId
    destination: str
    status: Status
    is_resolved: bool = False


class FoundEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event without its payload, and its deliveries.

    `destinations` are those that it was given to; a delivery that was deleted, exported or pruned
    is no longer among the `deliveries`.
    """

    id: EventId
    type: str
    published_at: datetime
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    version: int | None = None
    destinations: tuple[str, ...] = ()
    deliveries: tuple[EventDelivery, ...] = ()


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to look at; what is `None` does not matter.

    `event_type` may be a glob. With `status`, one of the event's deliveries has it, and is not
    resolved. `unrouted` are the events that no destination was given. The time is when it was
    published: from `since` on, before `until`.
    """

    event_id: str | None = None
    event_type: str | None = None
    key: str | None = None
    tenant: str | None = None
    source: str | None = None
    status: Status | None = None
    unrouted: bool = False
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in _SOUGHT:
            if (value := getattr(self, name)) is not None:
                check_text(name, value, longest=_LONGEST_SOUGHT)
        if self.unrouted and self.status is not None:
            raise UsageError(
                f"An unrouted event has no delivery, so none is {self.status}; leave the status "
                "or `unrouted` out."
            )

    def fits(self, found: FoundEvent) -> bool:
        """Tell whether it finds an event; its deliveries are looked at by `fits_one_of`."""
        return (
            self.event_id in (None, found.id)
            and (self.event_type is None or matches(self.event_type, found.type))
            and self.key in (None, found.key)
            and self.tenant in (None, found.tenant)
            and self.source in (None, found.source)
            and not (self.unrouted and found.destinations)
            and (self.since is None or found.published_at >= self.since)
            and (self.until is None or found.published_at < self.until)
        )

    def fits_one_of(self, deliveries: Sequence[EventDelivery]) -> bool:
        """Tell whether one of an event's deliveries is as it has to be."""
        return self.status is None or any(
            one.status is self.status and not one.is_resolved for one in deliveries
        )


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, and where to look on; `None` at the beginning of the log.

    `is_older` says that the call has looked at many events, all published before the query's
    `since`: nobody need look on.
    """

    events: tuple[FoundEvent, ...] = ()
    next_cursor: str | None = None
    is_older: bool = False


class EventSearch(Protocol):
    """Looking for events, without changing anything."""

    async def find_events(
        self, query: EventQuery, *, cursor: str | None = None, limit: int = 50
    ) -> EventPage:
        """Return matching events, the latest of the log first; pages neither repeat nor skip.

        A call looks at a bounded part of the log, however much there is: a page may hold fewer
        than `limit`, or none, and have a cursor all the same.
        """
