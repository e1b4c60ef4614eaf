"""Looking through a server: deliveries, dead letters, events, and the system in numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import msgspec

from redrive.client.remote import RemoteContext, fields_of, filter_of
from redrive.errors import DeliveryFailedError, ResultTimeoutError
from redrive.model.audit import AuditEntry, AuditQuery
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.duration import Duration, duration
from redrive.model.event import Event
from redrive.model.gate import GateFigures
from redrive.model.position import LOG_START, LogPosition
from redrive.model.trend import Trend, Window
from redrive.operations import DeliveryState, EventStory, ScheduleFigures, Story
from redrive.operations.context import MOST_PER_PAGE, known_ids
from redrive.operations.trends import window_of
from redrive.store import (
    EventDelivery,
    EventPage,
    EventQuery,
    Figures,
    Finding,
    FoundEvent,
    Group,
    LaneFigures,
    LoggedEvent,
    Miscount,
    Page,
    ProjectionFigures,
    Query,
    Replay,
    TenantFigures,
)
from redrive.web import answers, requests

__all__ = ["RemoteLooking"]

_MOST_ASKED = 500
_LONGEST_WAIT_SECONDS = 20.0
_EVERY = tuple(DeliveryState)


class RemoteLooking(RemoteContext):
    """Look at a system through its server; what is shown has its secrets blanked.

    What `each_…` gives comes page by page, as it is asked for.
    """

    async def status(self) -> Figures:
        """Return the whole system in numbers."""
        return await self._sender.ask("status", Figures)

    async def schema_version(self) -> int:
        """Return the version of the store's schema; fails if the store cannot be written."""
        return (await self._sender.ask("schema_version", answers.SchemaVersion)).schema_version

    async def examine(self) -> Sequence[Finding]:
        """Look for what is wrong with the store and the system, and say what to do about it."""
        return (await self._sender.ask("examine", answers.Findings)).findings

    async def recount(self) -> Sequence[Miscount]:
        """Count all deliveries and events, and correct the counts that are kept of them."""
        return (await self._sender.ask("recount", answers.Miscounts)).miscounts

    async def stuck(self) -> Sequence[DeliveryId]:
        """Return pending deliveries that wait behind nobody."""
        return (await self._sender.ask("stuck", answers.Stuck)).stuck

    async def deliveries(
        self,
        query: Query | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        """Return the deliveries a query finds, latest change first; dead letters by default."""
        chosen = query or Query()
        given = requests.ListDeliveries(
            **fields_of(chosen),
            status=chosen.status,
            cursor=cursor,
            limit=limit,
            most_read=most_read,
        )
        return await self._sender.ask("deliveries", Page, given)

    async def each_delivery(self, query: Query | None = None) -> AsyncIterator[Delivery]:
        """Return all deliveries that a query finds; dead letters by default."""
        cursor = None
        while True:
            page = await self.deliveries(query, cursor=cursor, limit=MOST_PER_PAGE)
            for one in page.deliveries:
                yield one
            cursor = page.next_cursor
            if cursor is None:
                return

    async def dead_letters(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Return the dead letters a query finds, the latest first."""
        given = requests.ListDeadLetters(**_failed(query), cursor=cursor, limit=limit)
        return await self._sender.ask("dead_letters", Page, given)

    async def each_dead_letter(self, query: Query | None = None) -> AsyncIterator[Delivery]:
        """Return all dead letters that a query finds, the latest first."""
        cursor = None
        while True:
            page = await self.dead_letters(query, cursor=cursor, limit=MOST_PER_PAGE)
            for one in page.deliveries:
                yield one
            cursor = page.next_cursor
            if cursor is None:
                return

    async def groups(
        self, query: Query | None = None, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        """Return the dead letters a query finds by what they failed of, the largest group first."""
        given = requests.ListGroups(**_failed(query), limit=limit, most_read=most_read)
        return (await self._sender.ask("groups", answers.Groups, given)).groups

    async def outdated_groups(self) -> int:
        """Count the dead letters that workers have not yet put in their groups of today."""
        return (await self._sender.ask("outdated_groups", answers.Counted)).count

    async def select(
        self, query: Query | None = None, *, resolved: bool = False
    ) -> list[DeliveryId]:
        """Return the ids of all dead letters a query finds now, to act on exactly those.

        With `resolved` they are those that were resolved, to be reopened.
        """
        chosen = query or Query()
        if resolved:
            chosen = msgspec.structs.replace(chosen, with_resolved=True)
        return [
            one.id
            async for one in self.each_dead_letter(chosen)
            if not resolved or one.resolution is not None
        ]

    async def show(self, delivery_id: int) -> Story:
        """Return one delivery with its whole story, its secrets blanked."""
        return await self._sender.ask(
            "show", Story, requests.Show(payload=True), path={"id": delivery_id}
        )

    async def reveal(self, delivery_id: int, *, by: str = "", why: str = "") -> Story:
        """Return what `show` does with nothing blanked; who has seen it is written down."""
        self._refuse_actor(by)
        path = {"id": delivery_id}
        return await self._sender.ask("reveal", Story, requests.Act(why=why), path=path)

    async def conditions(self, ids: Sequence[int]) -> dict[DeliveryId, DeliveryState]:
        """Return how deliveries stand now; one that is not there is left out."""
        found: dict[DeliveryId, DeliveryState] = {}
        known = known_ids(ids)
        for begin in range(0, len(known), _MOST_ASKED):
            given = requests.AskConditions(id=[*known[begin : begin + _MOST_ASKED]])
            told = await self._sender.ask("conditions", answers.Conditions, given)
            found |= {DeliveryId(one): condition for one, condition in told.conditions.items()}
        return found

    async def find_events(
        self,
        query: EventQuery | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_stretches: int | None = None,
    ) -> EventPage:
        """Return the events a query finds, the latest first, without their payloads."""
        given = requests.ListEvents(
            **msgspec.structs.asdict(query or EventQuery()),
            cursor=cursor,
            limit=limit,
            most_stretches=most_stretches,
        )
        return await self._sender.ask("find_events", EventPage, given)

    async def each_event(self, query: EventQuery | None = None) -> AsyncIterator[FoundEvent]:
        """Return all events that a query finds, the latest first, without their payloads."""
        cursor = None
        while True:
            page = await self.find_events(query, cursor=cursor, limit=MOST_PER_PAGE)
            for one in page.events:
                yield one
            cursor = page.next_cursor
            if cursor is None:
                return

    async def show_event(self, event_id: str) -> EventStory:
        """Return an event with the story of each delivery, its secrets blanked."""
        return await self._sender.ask(
            "show_event", EventStory, requests.Show(payload=True), path={"name": event_id}
        )

    async def reveal_event(self, event_id: str, *, by: str = "", why: str = "") -> EventStory:
        """Return what `show_event` does with nothing blanked; who has seen it is written down."""
        self._refuse_actor(by)
        path = {"name": event_id}
        return await self._sender.ask("reveal_event", EventStory, requests.Act(why=why), path=path)

    async def delivery_of(self, event_id: str, *, fits: Collection[str] = _EVERY) -> EventDelivery:
        """Return the one delivery of an event that is in one of these conditions."""
        given = requests.FindDelivery(fits=[DeliveryState(one) for one in fits])
        path = {"name": event_id}
        return await self._sender.ask("delivery_of", EventDelivery, given, path=path)

    async def result(
        self,
        event_id: str,
        destination: str,
        *,
        timeout: Duration = "30s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> object:
        """Wait until an event is delivered to a destination; return what its handler returned."""
        clock, path = self._sender.clock, {"name": event_id, "destination": destination}
        end = clock.monotonic() + duration(timeout, name="timeout").total_seconds()
        while True:
            rest = max(0.0, end - clock.monotonic())
            given = _await(rest)
            told = await self._sender.ask("result", answers.ResultTold, given, path=path)
            if told.state is answers.ResultState.DELIVERED:
                returned: object = told.result
                return returned
            if told.state is answers.ResultState.FAILED:
                raise DeliveryFailedError(told.detail)
            if rest <= _LONGEST_WAIT_SECONDS:
                raise ResultTimeoutError(told.detail)

    async def reached(
        self,
        event_id: str,
        projection: str,
        *,
        timeout: Duration = "30s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> None:
        """Wait until a projection has applied an event; not at all for one it does not want."""
        clock, path = self._sender.clock, {"name": projection, "event": event_id}
        end = clock.monotonic() + duration(timeout, name="timeout").total_seconds()
        while True:
            rest = max(0.0, end - clock.monotonic())
            given = _await(rest)
            told = await self._sender.ask("reached", answers.Reached, given, path=path)
            if told.reached:
                return
            if rest <= _LONGEST_WAIT_SECONDS:
                raise ResultTimeoutError(told.detail)

    async def events(
        self, *, after: LogPosition | str = LOG_START, limit: int = 50, payloads: bool = False
    ) -> Sequence[LoggedEvent]:
        """Return published events in the order of the log, from behind a position.

        Their payloads are whole, and left out unless you ask for them, which needs the role
        operate.
        """
        return (await self._stretch(after, limit, payloads=payloads))[0]

    async def each_logged_event(
        self, *, after: LogPosition | str = LOG_START, payloads: bool = False
    ) -> AsyncIterator[LoggedEvent]:
        """Return all events behind a position, in the order of the log, up to its present end."""
        place = str(after)
        while True:
            found, reached = await self._stretch(place, MOST_PER_PAGE, payloads=payloads)
            for one in found:
                yield one
            if reached == place:
                return
            place = reached

    async def _stretch(
        self, after: LogPosition | str, limit: int, *, payloads: bool
    ) -> tuple[list[LoggedEvent], str]:
        given = requests.ReadLog(after=str(after), limit=limit, payload=payloads)
        told = await self._sender.ask("events", answers.LogStretch, given)
        return [_logged(one) for one in told.events], told.next_cursor

    async def audit(
        self, query: AuditQuery | None = None, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Return the past operations a query finds, the latest first."""
        chosen = query or AuditQuery()
        if chosen.deliveries == ():
            return ()
        given = requests.ListAudit(
            by=chosen.by,
            action=chosen.action,
            delivery=list(chosen.deliveries or ()),
            name=chosen.name,
            since=chosen.since,
            until=chosen.until,
            cursor=before,
            limit=limit,
        )
        return (await self._sender.ask("audit", answers.AuditEntries, given)).entries

    async def each_audit_entry(self, query: AuditQuery | None = None) -> AsyncIterator[AuditEntry]:
        """Return all past operations a query finds, the latest first."""
        before: int | None = None
        while True:
            entries = await self.audit(query, before=before, limit=MOST_PER_PAGE)
            for one in entries:
                yield one
            if len(entries) < MOST_PER_PAGE:
                return
            before = entries[-1].id

    async def lanes(
        self, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        """Return the keys that wait behind a dead letter, of one destination or all."""
        given = requests.ListLanes(destination=destination, limit=limit)
        return (await self._sender.ask("lanes", answers.Lanes, given)).lanes

    async def trends(
        self, destinations: Sequence[str] = (), *, over: Window | str = Window.HOUR
    ) -> Sequence[Trend]:
        """Return what became of deliveries to each of the destinations, or to all together."""
        given = requests.AskTrends(destination=[*destinations], over=window_of(over))
        return (await self._sender.ask("trends", answers.TrendList, given)).trends

    async def gates(self) -> Sequence[GateFigures]:
        """Return the gate of each destination: breaker, buckets, pause, and what holds it now."""
        return (await self._sender.ask("gates", answers.Gates)).gates

    async def schedules(self) -> Sequence[ScheduleFigures]:
        """Return every schedule that is stored or that a worker has ever declared, by name."""
        return (await self._sender.ask("schedules", answers.Schedules)).schedules

    async def show_schedule(self, name: str) -> ScheduleFigures:
        """Return one schedule."""
        return await self._sender.ask("show_schedule", ScheduleFigures, path={"name": name})

    async def projections(self) -> Sequence[ProjectionFigures]:
        """Return how far each projection is, and what is parked of it."""
        return (await self._sender.ask("projections", answers.Projections)).projections

    async def projection(self, name: str, *, version: int | None = None) -> ProjectionFigures:
        """Return how far one projection is: the version that readers have, or the one named."""
        given = requests.ChooseVersion(version=version)
        return await self._sender.ask("projection", ProjectionFigures, given, path={"name": name})

    async def replays(self, *, before: int | None = None, limit: int = 50) -> Sequence[Replay]:
        """Return the replays of many, the latest first; `before` is the id to go on from."""
        given = requests.ListReplays(cursor=before, limit=limit)
        return (await self._sender.ask("replays", answers.Replays, given)).replays

    async def show_replay(self, replay_id: int) -> Replay:
        """Return one replay of many, and how far it has come."""
        return await self._sender.ask("show_replay", Replay, path={"id": replay_id})

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        """Return the tenants with work or a past, those with the most pending first."""
        given = requests.ListTenants(
            destination=destination, tenant=tenant, only_paused=only_paused, limit=limit
        )
        return (await self._sender.ask("tenants", answers.TenantList, given)).tenants


def _failed(query: Query | None) -> dict[str, Any]:
    return filter_of(msgspec.structs.replace(query or Query(), status=Query().status))


def _await(rest: float) -> requests.AwaitResult:
    seconds = min(rest, _LONGEST_WAIT_SECONDS)
    return requests.AwaitResult(timeout=f"{seconds:.3f}s")


def _logged(entry: answers.LogEntry) -> LoggedEvent:
    event: Event[msgspec.Raw] = entry.event
    return LoggedEvent(LogPosition.parse(entry.position), event, entry.version)
