"""Looking: deliveries, dead letters, events, and the system in numbers."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from redrive.errors import DeliveryFailedError, ResultTimeoutError
from redrive.model.access import Role
from redrive.operations import Condition, EventStory, Story
from redrive.operations.tracing import condition_of
from redrive.store import EventDelivery, EventPage, Figures, Page
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
    readable,
    readable_event,
    without_payload,
    without_payloads,
)
from redrive.web.endpoints.owning import (
    at_own,
    counted_within,
    next_page,
    owned,
    visible,
    within,
)
from redrive.web.problem import ProblemError, not_there
from redrive.web.requests import (
    Act,
    AskConditions,
    AwaitResult,
    FindDelivery,
    ListAudit,
    ListDeadLetters,
    ListDeliveries,
    ListEvents,
    ListGroups,
    ListSome,
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
    return await call.operations.deliveries(query, cursor=given.cursor, limit=given.limit)


async def dead_letters(call: Call, given: ListDeadLetters) -> Page:
    """List dead letters, the latest first."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return await call.operations.dead_letters(query, cursor=given.cursor, limit=given.limit)


async def groups(call: Call, given: ListGroups) -> Groups:
    """Return dead letters by what they failed of, the largest group first."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return Groups(await call.operations.groups(query, limit=given.limit))


async def outdated_groups(call: Call, _: Nothing) -> Counted:
    """Count the dead letters that workers have not yet put in their groups of today."""
    return Counted(await call.operations.outdated_groups())


async def show(call: Call, given: Show) -> Story:
    """Return one delivery with its whole story; its `ETag` is what an edit is matched against.

    What was carried, sent and answered is shown if it is asked for, with secrets blanked.
    """
    story = await owned(call, call.id)
    call.headers["etag"] = f'"{story.mark}"'
    return readable(story) if given.payload else without_payload(story)


async def reveal(call: Call, given: Act) -> Story:
    """Return one delivery with nothing blanked; the audit log tells who has seen it."""
    await owned(call, call.id)
    story = await call.operations.reveal(call.id, by=call.by, why=given.why)
    return readable(await within(call, story))


async def conditions(call: Call, given: AskConditions) -> Conditions:
    """Return how deliveries stand; one that is not there is left out."""
    ids = await visible(call, given.id)
    found = await call.operations.conditions(ids)
    return Conditions({int(one): condition for one, condition in found.items()})


async def find_events(call: Call, given: ListEvents) -> EventPage:
    """List events without their payloads, the latest first."""
    query = given.query(tenant=call.narrow(tenant=given.tenant)["tenant"])
    return await call.operations.find_events(query, cursor=given.cursor, limit=given.limit)


async def show_event(call: Call, given: Show) -> EventStory:
    """Return an event, and the story of each of its deliveries.

    What was carried, sent and answered is shown if it is asked for, with secrets blanked.
    """
    told = await _owned_event(call)
    return _readable(told) if given.payload else without_payloads(told)


async def reveal_event(call: Call, given: Act) -> EventStory:
    """Return an event with nothing blanked; the audit log tells who has seen it."""
    await _owned_event(call)
    told = await call.operations.reveal_event(call.name, by=call.by, why=given.why)
    return _readable(await _within_event(call, told))


async def _owned_event(call: Call) -> EventStory:
    return await _within_event(call, await call.operations.show_event(call.name))


async def _within_event(call: Call, told: EventStory) -> EventStory:
    call.caller.require(call.operation, tenant=told.event.tenant)
    stories = [await counted_within(call, one) for one in told.stories]
    return msgspec.structs.replace(told, stories=tuple(stories))


def _readable(told: EventStory) -> EventStory:
    return msgspec.structs.replace(
        told,
        event=readable_event(told.event),
        stories=tuple(readable(one) for one in told.stories),
    )


async def delivery_of(call: Call, given: FindDelivery) -> EventDelivery:
    """Return the one delivery of an event that is in one of these conditions."""
    fits = tuple(given.fits) or tuple(Condition)
    if not call.caller.is_limited:
        return await call.operations.delivery_of(call.name, fits=fits)
    told = await call.operations.show_event(call.name)
    mine = [
        one
        for one in told.found.deliveries
        if call.caller.sees(call.operation, tenant=told.event.tenant, destination=one.destination)
    ]
    fitting = [one for one in mine if condition_of(one) in fits]
    if not mine:
        raise not_there()
    if len(fitting) != 1:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "bad-request",
            f"{len(fitting)} deliveries of the event fit; say in which condition it is.",
        )
    return fitting[0]


async def result(call: Call, given: AwaitResult) -> ResultTold:
    """Wait for what the handler of a destination returns, for a while."""
    destination = str(call.path["destination"])
    told = await call.operations.show_event(call.name)
    call.caller.require(call.operation, tenant=told.event.tenant, destination=destination)
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
        events=[LogEntry.of(one, with_payload=given.payload) for one in seen],
        next_cursor=str(found[-1].position) if found else given.after,
    )


async def audit(call: Call, given: ListAudit) -> AuditEntries:
    """Return the acts of the past, the latest first."""
    found = await call.operations.audit(given.query, before=given.cursor, limit=given.limit)
    return AuditEntries(found, next_page(found, given.limit))


async def lanes(call: Call, given: ListSome) -> Lanes:
    """Return the keys that wait behind a dead letter, the longest first."""
    found = await call.operations.lanes(limit=given.limit)
    return Lanes(at_own(call, found))


async def gates(call: Call, _: Nothing) -> Gates:
    """Return the gate of each destination: breaker, buckets, pause, and what holds it now."""
    return Gates(at_own(call, await call.operations.gates()))
