"""Search: events and deliveries by what is known of them, and one event with what became of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from urllib.parse import quote, urlencode

import msgspec

from redrive.errors import NotFoundError
from redrive.model.delivery import Delivery, Status
from redrive.operations import EventStory
from redrive.store import EventDelivery, EventQuery, FoundEvent, Query
from redrive.web.answers import without_payloads
from redrive.web.pages.page import MOST_READ, Moved, Page, Visit

__all__ = [
    "EventView",
    "FoundRow",
    "Search",
    "event_path",
    "reveal_event",
    "show_event",
    "show_search",
]

_PER_PAGE = 50
_MOST_STRETCHES = MOST_READ // 2_000
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FILTERS = ("event_id", "key", "type", "tenant", "destination", "status", "text")


class FoundRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event that fits, and its deliveries that do; `error` is what one of them failed of."""

    event_id: str
    type: str
    at: datetime
    key: str | None = None
    tenant: str | None = None
    deliveries: tuple[EventDelivery, ...] = ()
    error: str = ""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the latest first, by which filters, and where to look on.

    `is_cut` says that the page ends because so much was read, and not because it is full.
    """

    rows: tuple[FoundRow, ...]
    filters: dict[str, str]
    statuses: tuple[str, ...] = tuple(Status)
    next: str | None = None
    is_cut: bool = False
    most_read: int = MOST_READ

    @property
    def is_asked(self) -> bool:
        """Whether anything is sought."""
        return any(self.filters.values())

    @property
    def onward(self) -> str:
        """Where the search goes on."""
        said = {name: value for name, value in self.filters.items() if value}
        return f"/search?{urlencode({**said, 'cursor': self.next or ''})}"


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event and its deliveries; its `payload` is there if somebody had it shown."""

    told: EventStory
    payload: str | None = None


def event_path(event_id: str) -> str:
    """Return where an event is shown."""
    return f"/events/{quote(event_id, safe='')}"


async def show_search(visit: Visit) -> Page | Moved:
    """Look for events and deliveries; what can be only one thing is shown at once."""
    anything = visit.asked("any")
    if anything is not None and (found := await _guess(visit, anything)) is not None:
        return Moved(found)
    filters = {name: visit.asked(name) or "" for name in _FILTERS}
    if anything is not None:
        filters["key"] = anything
    status = Status(filters["status"]) if filters["status"] in tuple(Status) else None
    cursor = visit.asked("cursor")
    if filters["text"] or filters["destination"] or status:
        model = await _deliveries(visit, filters, status, cursor)
    else:
        model = await _events(visit, filters, cursor)
    return Page(template="search.html", title="Search", model=model)


async def show_event(visit: Visit) -> Page:
    """Show an event and what became of it, without what it carries."""
    told = without_payloads(await visit.operations.show_event(visit.name))
    return _event_page(EventView(told=told))


async def reveal_event(visit: Visit) -> Page:
    """Show what an event carries as well, and write down who has seen it."""
    told = await visit.operations.reveal_event(visit.name, by=visit.by, why=visit.why)
    try:
        pretty = msgspec.json.format(bytes(told.event.payload), indent=2).decode()
    except (ValueError, RecursionError):
        pretty = bytes(told.event.payload).decode(errors="replace")
    return _event_page(EventView(told=told, payload=pretty))


def _event_page(view: EventView) -> Page:
    event = view.told.event
    return Page(template="event.html", title=f"Event {event.id}: {event.type}", model=view)


async def _guess(visit: Visit, text: str) -> str | None:
    """Return the page of a delivery by its number or of an event by its id, if there is one."""
    try:
        if text.isascii() and text.isdigit():
            await visit.operations.show(int(text))
            return f"/deliveries/{int(text)}"
        if _ID.fullmatch(text):
            await visit.operations.show_event(text)
            return event_path(text)
    except NotFoundError:
        pass
    return None


async def _events(visit: Visit, filters: dict[str, str], cursor: str | None) -> Search:
    query = EventQuery(
        event_id=filters["event_id"] or None,
        event_type=filters["type"] or None,
        key=filters["key"] or None,
        tenant=filters["tenant"] or None,
    )
    page = await visit.operations.find_events(
        query, cursor=cursor, limit=_PER_PAGE, most_stretches=_MOST_STRETCHES
    )
    return Search(
        rows=tuple(_of_event(one) for one in page.events),
        filters=filters,
        next=page.next_cursor,
        is_cut=page.next_cursor is not None and len(page.events) < _PER_PAGE,
        # Keys are looked at faster than the rest.
        most_read=0 if query.key else MOST_READ,
    )


async def _deliveries(
    visit: Visit, filters: dict[str, str], status: Status | None, cursor: str | None
) -> Search:
    query = Query(
        status=status,
        event_id=filters["event_id"] or None,
        event_type=filters["type"] or None,
        key=filters["key"] or None,
        tenant=filters["tenant"] or None,
        destination=filters["destination"] or None,
        text=filters["text"] or None,
    )
    # Of dead letters there is an index by destination.
    is_bounded = query.text is not None or status is not Status.FAILED
    page = await visit.operations.deliveries(
        query, cursor=cursor, limit=_PER_PAGE, most_read=MOST_READ if is_bounded else None
    )
    return Search(
        rows=_of_deliveries(page.deliveries),
        filters=filters,
        next=page.next_cursor,
        is_cut=page.next_cursor is not None and len(page.deliveries) < _PER_PAGE,
    )


def _of_event(found: FoundEvent) -> FoundRow:
    return FoundRow(
        event_id=found.id,
        type=found.type,
        at=found.published_at,
        key=found.key,
        tenant=found.tenant,
        deliveries=found.deliveries,
    )


def _of_deliveries(found: Sequence[Delivery]) -> tuple[FoundRow, ...]:
    """Return deliveries by their events; those of one event follow each other."""
    rows: list[FoundRow] = []
    for _, some in groupby(found, key=lambda one: one.event_id):
        deliveries = list(some)
        first = deliveries[0]
        faults = [one.fault.message for one in deliveries if one.fault is not None]
        rows.append(
            FoundRow(
                event_id=first.event_id,
                type=first.event_type,
                at=first.settled_at or first.enqueued_at,
                key=first.key,
                tenant=first.tenant,
                deliveries=tuple(_brief(one) for one in deliveries),
                error=faults[0] if faults else "",
            )
        )
    return tuple(rows)


def _brief(one: Delivery) -> EventDelivery:
    return EventDelivery(
        id=one.id,
        destination=one.destination,
        status=one.status,
        is_resolved=one.resolution is not None,
    )
