"""Tracing: events by what is known of them, and what became of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import count

import msgspec

from redrive.errors import NotFoundError, UsageError
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Status
from redrive.model.event import Event, EventId
from redrive.operations.context import check_limit, known_ids
from redrive.operations.looking import Looking, Story
from redrive.store import EventDelivery, EventPage, EventQuery, FoundEvent

__all__ = ["DeliveryState", "EventStory", "Tracing", "condition_of"]

_MOST_STORIES = 20
_MOST_NAMED = 10


class DeliveryState(StrEnum):
    """How a delivery stands, in the words of people who act on it."""

    DEAD_LETTER = "a dead letter"
    PENDING = "pending"
    IN_FLIGHT = "in flight"
    DELIVERED = "delivered"
    RESOLVED = "resolved"


_CONDITIONS = {
    Status.PENDING: DeliveryState.PENDING,
    Status.IN_FLIGHT: DeliveryState.IN_FLIGHT,
    Status.DELIVERED: DeliveryState.DELIVERED,
    Status.FAILED: DeliveryState.DEAD_LETTER,
}
_TOLD_FIRST = tuple(DeliveryState)


class EventStory(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and what became of it.

    `found` lists all of its deliveries; `stories` tells of them, those that need somebody first,
    but of no more than 20.
    """

    event: Event[msgspec.Raw]
    found: FoundEvent
    stories: tuple[Story, ...] = ()


class Tracing(Looking):
    """Find events, and follow one to all of its deliveries; changes nothing."""

    async def find_events(
        self,
        query: EventQuery | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_stretches: int | None = None,
    ) -> EventPage:
        """Return the events a query finds, the latest first, without their payloads.

        The log is looked through from its end, stretch by stretch, until the page is full or, if
        that is given, so many stretches were read, each of 2,000 events or fewer. What is sought by
        its id, or is unrouted, is found at once; by its key on PostgreSQL, too, and elsewhere in
        stretches of 20,000.
        """
        check_limit(limit)
        store, chosen = await self._store(), query or EventQuery()
        found: list[FoundEvent] = []
        for stretch in count(1):
            page = await store.find_events(chosen, cursor=cursor, limit=limit - len(found))
            found += page.events
            cursor = None if page.is_older else page.next_cursor
            if cursor is None or len(found) == limit or stretch == most_stretches:
                break
        seen = tuple(one for one in map(self._seen, found) if one is not None)
        return EventPage(events=seen, next_cursor=cursor)

    async def show_event(self, event_id: str) -> EventStory:
        """Return an event with the story of each delivery, its secrets blanked."""
        found, event = await self._trace(event_id)
        stories = [await self.show(one.id) for one in _told_of(found)]
        return EventStory(event=self._redaction.event(event), found=found, stories=tuple(stories))

    async def reveal_event(self, event_id: str, *, by: str, why: str = "") -> EventStory:
        """Return what `show_event` does with nothing blanked, and write down who has seen it."""
        actor = Actor(by, why)
        found, event = await self._trace(event_id)
        stories = [await self._tell(one.id) for one in _told_of(found)]
        seen = [one.delivery.id for one in stories]
        await (await self._to_change()).note(
            "reveal", seen, actor=actor, detail=f"event {event.id}"
        )
        self._done("reveal", seen, actor)
        return EventStory(event=event, found=found, stories=tuple(stories))

    async def delivery_of(
        self, event_id: str, *, fits: Collection[str] = tuple(DeliveryState)
    ) -> EventDelivery:
        """Return the one delivery of an event that is in one of these conditions.

        If there is none, or more than one, the `UsageError` names those there are.
        """
        found = await self._find_event(event_id)
        fitting = [one for one in found.deliveries if condition_of(one) in fits]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"Event {found.id} has {len(fitting)} deliveries that fit: {_listed(fitting)}; "
                "name the one that is meant by its number."
            )
        if found.deliveries:
            raise UsageError(
                f"No delivery of event {found.id} is {' or '.join(fits)}: "
                f"{_listed(found.deliveries)}."
            )
        whom = ", ".join(found.destinations)
        raise UsageError(
            f"Event {found.id} has no delivery: "
            + (f"those to {whom} are no longer kept." if whom else "no destination was given it.")
        )

    async def conditions(self, ids: Sequence[int]) -> dict[DeliveryId, DeliveryState]:
        """Return how deliveries stand now; one that is not there is left out."""
        store = await self._store()
        found = [await store.find_delivery(one) for one in known_ids(ids)]
        return {
            one.id: _condition(one.status, one.resolution is not None)
            for one in found
            if one is not None and self._is_within(one)
        }

    async def _trace(self, event_id: str) -> tuple[FoundEvent, Event[msgspec.Raw]]:
        found = await self._find_event(event_id)
        event = await (await self._store()).find_event(found.id)
        if event is None:
            raise _no_event(event_id)
        return found, event

    async def _find_event(self, event_id: str) -> FoundEvent:
        query = EventQuery(event_id=EventId(event_id))
        page = await (await self._store()).find_events(query, limit=1)
        found = next((self._seen(one) for one in page.events), None)
        if found is None:
            raise _no_event(event_id)
        return found

    def _seen(self, found: FoundEvent) -> FoundEvent | None:
        """Return what of an event is within the scope, if anything is."""
        scope = self._scope
        if not scope.is_limited:
            return found
        deliveries = tuple(
            one
            for one in found.deliveries
            if scope.holds(tenant=found.tenant, destination=one.destination)
        )
        if scope.tenant not in (None, found.tenant) or (scope.destinations and not deliveries):
            return None
        # The versions of a key are counted over all tenants.
        return msgspec.structs.replace(found, deliveries=deliveries, version=None)


def condition_of(delivery: EventDelivery) -> DeliveryState:
    """Say how a delivery stands."""
    return _condition(delivery.status, delivery.is_resolved)


def _condition(status: Status, is_resolved: bool) -> DeliveryState:  # noqa: FBT001 - the only two facts
    return DeliveryState.RESOLVED if is_resolved else _CONDITIONS[status]


def _told_of(found: FoundEvent) -> list[EventDelivery]:
    needy = sorted(found.deliveries, key=lambda one: (_TOLD_FIRST.index(condition_of(one)), one.id))
    return needy[:_MOST_STORIES]


def _listed(deliveries: Sequence[EventDelivery]) -> str:
    named = [f"{one.id} to {one.destination}, {condition_of(one)}" for one in deliveries]
    more = len(named) - _MOST_NAMED
    return "; ".join(named[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _no_event(event_id: str) -> NotFoundError:
    return NotFoundError(
        f"There is no event {event_id}; it may have been pruned. "
        "`redrive event list` shows those there are."
    )
