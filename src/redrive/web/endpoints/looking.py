"""Looking: deliveries, dead letters, events, and the system in numbers."""

from __future__ import annotations

import msgspec

from redrive.errors import DeliveryFailedError, ResultTimeoutError
from redrive.model.access import Role
from redrive.operations import DeliveryState, EventStory, Story
from redrive.store import EventDelivery, EventPage, Figures, LoggedEvent, Page
from redrive.web.answers import (
    AuditEntries,
    Conditions,
    Counted,
    Findings,
    Gates,
    Groups,
    Lanes,
    LogEntry,
    LogStretch,
    ResultState,
    ResultTold,
    SchemaVersion,
    Stuck,
    TrendList,
    readable,
    readable_event,
    without_payload,
    without_payloads,
)
from redrive.web.endpoints.paging import at_own, next_page
from redrive.web.requests import (
    Act,
    AskConditions,
    AskTrends,
    AwaitResult,
    FindDelivery,
    ListAudit,
    ListDeadLetters,
    ListDeliveries,
    ListEvents,
    ListGroups,
    ListLanes,
    Nothing,
    ReadLog,
    Show,
)
from redrive.web.route import Call

__all__ = [
    "audit",
    "conditions",
    "dead_letters",
    "deliveries",
    "delivery_of",
    "events",
    "examine",
    "find_events",
    "gates",
    "groups",
    "lanes",
    "outdated_groups",
    "result",
    "reveal",
    "reveal_event",
    "schema_version",
    "show",
    "show_event",
    "status",
    "stuck",
    "trends",
]


async def status(call: Call, _: Nothing) -> Figures:
    """Return the whole system in numbers."""
    return await call.operations.status()


async def schema_version(call: Call, _: Nothing) -> SchemaVersion:
    """Return the version of the store's schema; fails if the store cannot be written."""
    return SchemaVersion(await call.operations.schema_version())


async def examine(call: Call, _: Nothing) -> Findings:
    """Look for what is wrong with the store and the system, and say what to do about it."""
    return Findings(await call.operations.examine())


async def stuck(call: Call, _: Nothing) -> Stuck:
    """Return pending deliveries that wait behind nobody; there are none unless something is wrong.

    It may read all that keeps its order.
    """
    return Stuck(await call.operations.stuck())


async def deliveries(call: Call, given: ListDeliveries) -> Page:
    """List deliveries, the latest change first."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return await call.operations.deliveries(
        query, cursor=given.cursor, limit=given.limit, most_read=given.most_read
    )


async def dead_letters(call: Call, given: ListDeadLetters) -> Page:
    """List dead letters, the latest first."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return await call.operations.dead_letters(query, cursor=given.cursor, limit=given.limit)


async def groups(call: Call, given: ListGroups) -> Groups:
    """Return dead letters by what they failed of, the largest group first."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return Groups(await call.operations.groups(query, limit=given.limit, most_read=given.most_read))


async def outdated_groups(call: Call, _: Nothing) -> Counted:
    """Count the dead letters that workers have not yet put in their groups of today."""
    return Counted(await call.operations.outdated_groups())


async def show(call: Call, given: Show) -> Story:
    """Return one delivery with its whole story; its `ETag` is what an edit is matched against.

    What was carried, sent and answered is shown if it is asked for, with secrets blanked.
    """
    story = await call.operations.show(call.id)
    call.headers["etag"] = f'"{story.mark}"'
    return readable(story) if given.payload else without_payload(story)


async def reveal(call: Call, given: Act) -> Story:
    """Return one delivery with nothing blanked; the audit log tells who has seen it."""
    return readable(await call.operations.reveal(call.id, by=call.by, why=given.why))


async def conditions(call: Call, given: AskConditions) -> Conditions:
    """Return how deliveries stand; one that is not there is left out."""
    found = await call.operations.conditions(given.id)
    return Conditions({int(one): condition for one, condition in found.items()})


async def find_events(call: Call, given: ListEvents) -> EventPage:
    """List events without their payloads, the latest first."""
    query = given.query(tenant=call.narrow(tenant=given.tenant)["tenant"])
    return await call.operations.find_events(
        query, cursor=given.cursor, limit=given.limit, most_stretches=given.most_stretches
    )


async def show_event(call: Call, given: Show) -> EventStory:
    """Return an event, and the story of each of its deliveries.

    What was carried, sent and answered is shown if it is asked for, with secrets blanked.
    """
    told = await call.operations.show_event(call.name)
    return _readable(told) if given.payload else without_payloads(told)


async def reveal_event(call: Call, given: Act) -> EventStory:
    """Return an event with nothing blanked; the audit log tells who has seen it."""
    return _readable(await call.operations.reveal_event(call.name, by=call.by, why=given.why))


def _readable(told: EventStory) -> EventStory:
    return msgspec.structs.replace(
        told,
        event=readable_event(told.event),
        stories=tuple(readable(one) for one in told.stories),
    )


async def delivery_of(call: Call, given: FindDelivery) -> EventDelivery:
    """Return the one delivery of an event that is in one of these conditions."""
    fits = tuple(given.fits) or tuple(DeliveryState)
    return await call.operations.delivery_of(call.name, fits=fits)


async def result(call: Call, given: AwaitResult) -> ResultTold:
    """Wait for what the handler of a destination returns, for a while."""
    destination = str(call.path["destination"])
    await call.operations.show_event(call.name)  # what is not there is said in the same words
    try:
        returned = await call.operations.result(call.name, destination, timeout=given.span)
    except DeliveryFailedError as error:
        return ResultTold(state=ResultState.FAILED, detail=str(error))
    except ResultTimeoutError as error:
        return ResultTold(state=ResultState.WAITING, detail=str(error))
    return ResultTold(state=ResultState.DELIVERED, result=returned)


async def events(call: Call, given: ReadLog) -> LogStretch:
    """Read the log in its order, from behind a position; payloads are whole, if asked for.

    A reader that always goes on from `next_cursor` sees every event once.
    """
    if given.payload:
        call.caller.require_role(Role.OPERATE, "Reading payloads, which are whole in the log,")
    tenant = call.narrow()["tenant"]
    found = await call.operations.events(after=given.after, limit=given.limit)
    seen = [one for one in found if tenant in (None, one.event.tenant)]
    return LogStretch(
        events=[_entry(call, one, with_payload=given.payload) for one in seen],
        next_cursor=str(found[-1].position) if found else given.after,
    )


def _entry(call: Call, logged: LoggedEvent, *, with_payload: bool) -> LogEntry:
    if call.caller.is_limited:  # the versions of a key are counted over all tenants
        logged = msgspec.structs.replace(logged, version=None)
    return LogEntry.of(logged, with_payload=with_payload)


async def audit(call: Call, given: ListAudit) -> AuditEntries:
    """Return the acts of the past, the latest first."""
    found = await call.operations.audit(given.query, before=given.cursor, limit=given.limit)
    return AuditEntries(found, next_page(found, given.limit))


async def lanes(call: Call, given: ListLanes) -> Lanes:
    """Return the keys that wait behind a dead letter, of one destination or all."""
    found = await call.operations.lanes(destination=given.destination, limit=given.limit)
    return Lanes(at_own(call, found))


async def gates(call: Call, _: Nothing) -> Gates:
    """Return the gate of each destination: breaker, buckets, pause, and what holds it now."""
    return Gates(at_own(call, await call.operations.gates()))


async def trends(call: Call, given: AskTrends) -> TrendList:
    """Return what became of deliveries over the last hour, day or week, and how long tries took."""
    wanted: list[str | None] = [*given.destination] or [None]
    asked = [call.narrow(destination=one)["destination"] for one in wanted]
    names = [one for one in asked if one is not None]
    return TrendList(await call.operations.trends(names, over=given.over))
