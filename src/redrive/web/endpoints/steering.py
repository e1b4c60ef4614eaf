"""Steering: replays of many, destinations and their breakers, tenants, schedules."""

from __future__ import annotations

from http import HTTPStatus

from redrive.model.gate import BreakerChange, Override
from redrive.operations import ReplayPlan, ScheduleFigures
from redrive.store import Query, Replay
from redrive.web.answers import (
    Acted,
    AutoReplays,
    BreakerChanges,
    Replays,
    Schedules,
    TenantList,
)
from redrive.web.endpoints.paging import at_own, next_page
from redrive.web.problem import ProblemError
from redrive.web.requests import (
    Act,
    ActOnTenant,
    Filter,
    ListReplays,
    ListTenants,
    Nothing,
    OpenBreaker,
    OverrideLimits,
    PlanReplay,
    StartReplay,
    read_instant,
)
from redrive.web.route import Call

__all__ = [
    "auto_replays",
    "cancel_replay",
    "end_override",
    "open_breaker",
    "override",
    "pause",
    "pause_replay",
    "pause_schedule",
    "pause_tenant",
    "plan_replay",
    "replays",
    "reset_breaker",
    "reset_breakers",
    "resume",
    "resume_replay",
    "resume_schedule",
    "resume_tenant",
    "run_schedule",
    "schedules",
    "show_replay",
    "show_schedule",
    "start_replay",
    "tenants",
]


async def plan_replay(call: Call, given: PlanReplay) -> ReplayPlan:
    """Count what a replay would take, and say what stands in its way; changes nothing."""
    selection = await _selection(call, given)
    return await call.operations.plan_replay(selection, rate=given.rate)


async def start_replay(call: Call, given: StartReplay) -> Replay:
    """Send many dead letters again: one first, more while they succeed, none when they fail.

    Workers drive it; it survives them.
    """
    return await call.operations.start_replay(
        await _selection(call, given),
        by=call.by,
        why=given.why,
        generation=given.generation,
        rate=given.rate,
        canary=given.canary,
        largest_wave=given.largest_wave,
        failure_limit=given.failure_limit,
        render_again=given.render_again,
    )


async def replays(call: Call, given: ListReplays) -> Replays:
    """Return the replays of many, the latest first."""
    found = await call.operations.replays(before=given.cursor, limit=given.limit)
    return Replays(found, next_page(found, given.limit))


async def show_replay(call: Call, _: Nothing) -> Replay:
    """Return one replay of many, and how far it has come."""
    return await call.operations.show_replay(call.id)


async def pause_replay(call: Call, given: Act) -> Acted:
    """Send no more letters for now."""
    return Acted(await call.operations.pause_replay(call.id, by=call.by, why=given.why))


async def resume_replay(call: Call, given: Act) -> Acted:
    """Go on with a replay that was paused or has stopped."""
    return Acted(await call.operations.resume_replay(call.id, by=call.by, why=given.why))


async def cancel_replay(call: Call, given: Act) -> Acted:
    """Leave the letters that are not sent yet alone for good."""
    return Acted(await call.operations.cancel_replay(call.id, by=call.by, why=given.why))


async def auto_replays(call: Call, _: Nothing) -> AutoReplays:
    """Return the destinations that are replayed by themselves, and when that is next due."""
    return AutoReplays(at_own(call, await call.operations.auto_replays()))


async def pause(call: Call, given: Act) -> Acted:
    """Stop a destination; its deliveries wait, and no attempt is spent."""
    call.narrow(destination=call.name)
    return Acted(await call.operations.pause(call.name, by=call.by, why=given.why))


async def resume(call: Call, given: Act) -> Acted:
    """Let a paused destination go on, at the pace of retries."""
    call.narrow(destination=call.name)
    return Acted(await call.operations.resume(call.name, by=call.by, why=given.why))


async def open_breaker(call: Call, given: OpenBreaker) -> BreakerChange:
    """Open a breaker by hand, until an instant or until it is reset."""
    call.narrow(destination=call.name)
    until = None if given.until is None else read_instant("until", given.until, call.now)
    return await call.operations.open_breaker(call.name, by=call.by, why=given.why, until=until)


async def reset_breaker(call: Call, given: Act) -> BreakerChange:
    """Close a breaker by hand; what waited goes on at the pace of retries."""
    call.narrow(destination=call.name)
    return await call.operations.reset_breaker(call.name, by=call.by, why=given.why)


async def override(call: Call, given: OverrideLimits) -> Override:
    """Set limits of a destination for a while, above whatever is declared."""
    call.narrow(destination=call.name)
    return await call.operations.override(
        call.name,
        lasts=given.lasts,
        by=call.by,
        why=given.why,
        rate=given.rate,
        retry_rate=given.retry_rate,
        replay_rate=given.replay_rate,
        concurrency=given.concurrency,
    )


async def end_override(call: Call, given: Act) -> Acted:
    """Go back to the declared limits before an override ends by itself."""
    call.narrow(destination=call.name)
    return Acted(await call.operations.end_override(call.name, by=call.by, why=given.why))


async def reset_breakers(call: Call, given: Act) -> BreakerChanges:
    """Close all breakers that are not closed."""
    return BreakerChanges(await call.operations.reset_breakers(by=call.by, why=given.why))


async def tenants(call: Call, given: ListTenants) -> TenantList:
    """Return the tenants with work or a past, those with the most pending first."""
    narrowed = call.narrow(tenant=given.tenant, destination=given.destination)
    found = await call.operations.tenants(
        **narrowed, only_paused=given.only_paused, limit=given.limit
    )
    return TenantList(found)


async def pause_tenant(call: Call, given: ActOnTenant) -> Acted:
    """Let nothing of a tenant start, at one destination or at all of them; others go on."""
    call.narrow(tenant=call.name, destination=given.destination)
    return Acted(
        await call.operations.pause_tenant(
            call.name, by=call.by, why=given.why, destination=given.destination
        )
    )


async def resume_tenant(call: Call, given: ActOnTenant) -> Acted:
    """End a pause of a tenant: that at one destination, or that at all of them."""
    call.narrow(tenant=call.name, destination=given.destination)
    return Acted(
        await call.operations.resume_tenant(
            call.name, by=call.by, why=given.why, destination=given.destination
        )
    )


async def schedules(call: Call, _: Nothing) -> Schedules:
    """Return every schedule that a worker has ever declared, by name."""
    return Schedules(await call.operations.schedules())


async def show_schedule(call: Call, _: Nothing) -> ScheduleFigures:
    """Return one schedule."""
    return await call.operations.show_schedule(call.name)


async def pause_schedule(call: Call, given: Act) -> Acted:
    """Publish none of its ticks until it is resumed."""
    return Acted(await call.operations.pause_schedule(call.name, by=call.by, why=given.why))


async def resume_schedule(call: Call, given: Act) -> Acted:
    """Publish its ticks from now on."""
    return Acted(await call.operations.resume_schedule(call.name, by=call.by, why=given.why))


async def run_schedule(call: Call, given: Act) -> Acted:
    """Have a worker publish the event of a schedule now, beside its ticks."""
    return Acted(await call.operations.run_schedule(call.name, by=call.by, why=given.why))


async def _selection(call: Call, given: PlanReplay) -> Query | list[int]:
    if given.ids is not None and given.filter is not None:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "bad-request",
            "Both ids and a filter are given; a replay takes one or the other.",
        )
    if given.ids is not None:
        return [int(one) for one in await call.operations.conditions(given.ids)]
    chosen = given.filter or Filter()
    return chosen.query(**call.narrow(tenant=chosen.tenant, destination=chosen.destination))
