"""Keeping: what is pruned, exported and restored, and what goes where."""

from __future__ import annotations

from redrive.archive import read_line
from redrive.errors import ResultTimeoutError
from redrive.operations import BackfillPlan, Erasure, ErasurePlan, PrunePlan
from redrive.store import Backfilled, LetterPage, Moved, ProjectionFigures, Restored
from redrive.web.answers import Acted, Counted, Miscounts, Projections, Reached
from redrive.web.erased import PlanErasure, RunErasure
from redrive.web.requests import (
    Act,
    ActOnVersion,
    ActWithReason,
    AwaitResult,
    ChooseVersion,
    ListDeadLetters,
    MoveDeliveries,
    Nothing,
    PlanBackfill,
    RebuildProjection,
    ResetProjection,
    RestoreLetters,
    RunBackfill,
    SwapProjection,
)
from redrive.web.route import Call

__all__ = [
    "backfill",
    "cancel_rebuild",
    "delete_pending",
    "drop_projection",
    "erase",
    "export_page",
    "fail_pending",
    "move",
    "plan_backfill",
    "plan_erase",
    "projection",
    "projections",
    "prunable",
    "prune",
    "reached",
    "rebuild_projection",
    "recount",
    "remove_destination",
    "reset_projection",
    "restore",
    "restore_destination",
    "swap_projection",
]

_STRETCHES = 5
"""How much of the log is gone through at one request."""


async def prunable(call: Call, _: Nothing) -> PrunePlan:
    """Count what a prune would remove now."""
    return await call.operations.prunable()


async def prune(call: Call, given: Act) -> PrunePlan:
    """Remove what was kept long enough, as workers do by themselves, and tell how much."""
    return await call.operations.prune(by=call.by, why=given.why)


async def recount(call: Call, _: Nothing) -> Miscounts:
    """Count all deliveries and events, and correct the counts that are kept of them."""
    return Miscounts(await call.operations.recount())


async def export_page(call: Call, given: ListDeadLetters) -> LetterPage:
    """Return dead letters whole, nothing blanked, in publish order, as `restore` takes them."""
    query = given.query(**call.narrow(tenant=given.tenant, destination=given.destination))
    return await call.operations.export_page(query, cursor=given.cursor, limit=given.limit)


async def restore(call: Call, given: RestoreLetters) -> Restored:
    """Put exported dead letters back; those that are there already change nothing."""
    letters = [read_line(bytes(one)) for one in given.letters]
    return await call.operations.restore(
        letters, by=call.by, why=given.why, out_of_order=given.out_of_order
    )


async def remove_destination(call: Call, given: Act) -> Acted:
    """Route nothing to a destination any more; what it has stays, held."""
    return Acted(await call.operations.remove_destination(call.name, by=call.by, why=given.why))


async def restore_destination(call: Call, given: Act) -> Acted:
    """Take a removal back: the destination gets what is published from now on."""
    return Acted(await call.operations.restore_destination(call.name, by=call.by, why=given.why))


async def move(call: Call, given: MoveDeliveries) -> Moved:
    """Hand what waits for a destination, and its dead letters, to another one."""
    return await call.operations.move(call.name, given.target, by=call.by, why=given.why)


async def fail_pending(call: Call, given: ActWithReason) -> Counted:
    """Make dead letters of what waits for a destination."""
    call.narrow(destination=call.name)
    return Counted(await call.operations.fail_pending(call.name, by=call.by, why=given.why))


async def delete_pending(call: Call, given: ActWithReason) -> Counted:
    """Remove what waits for a destination for good."""
    call.narrow(destination=call.name)
    return Counted(await call.operations.delete_pending(call.name, by=call.by, why=given.why))


async def plan_backfill(call: Call, given: PlanBackfill) -> BackfillPlan:
    """Find the events of the log that a destination wants and was never given."""
    return await call.operations.plan_backfill(call.name, **given.given)


async def backfill(call: Call, given: RunBackfill) -> Backfilled:
    """Give a destination the events of the log that it wants and was never given."""
    by, why, generation = call.by, given.why, given.generation
    if given.positions is None:
        return await call.operations.backfill(
            call.name, by=by, why=why, generation=generation, **given.given
        )
    plan = BackfillPlan(destination=call.name, positions=tuple(given.positions))
    return await call.operations.carry_out(plan, by=by, why=why, generation=generation)


async def plan_erase(call: Call, given: PlanErasure) -> ErasurePlan:
    """Count what an erasure would be about, in a stretch of the log; `next` is where to go on."""
    return await call.operations.plan_erase(**given.given, stretches=_STRETCHES)


async def erase(call: Call, given: RunErasure) -> Erasure:
    """Erase what events said, for good, in a stretch of the log; `next` is where to go on."""
    return await call.operations.erase(
        **given.given,
        by=call.by,
        why=given.why,
        waiting=given.waiting,
        stretches=_STRETCHES,
    )


async def projections(call: Call, _: Nothing) -> Projections:
    """Return the projections, and how far each is."""
    return Projections(await call.operations.projections())


async def projection(call: Call, given: ChooseVersion) -> ProjectionFigures:
    """Return one projection, and how far it is: the version that readers have, or another."""
    return await call.operations.projection(call.name, version=given.version)


async def reset_projection(call: Call, given: ResetProjection) -> Counted:
    """Have a projection begin anew; counts what it had handed over, which is removed."""
    return Counted(
        await call.operations.reset_projection(
            call.name, by=call.by, why=given.why, version=given.version, after=given.after
        )
    )


async def rebuild_projection(call: Call, given: RebuildProjection) -> Counted:
    """Have a version made anew from the log; counts what it had handed over, which is removed."""
    return Counted(
        await call.operations.rebuild_projection(
            call.name,
            by=call.by,
            why=given.why,
            version=given.version,
            after=given.after,
            rate=given.rate,
            strict=given.strict,
        )
    )


async def cancel_rebuild(call: Call, given: ActOnVersion) -> Acted:
    """Have a version that is rebuilt beside the one that readers have apply nothing more."""
    await call.operations.cancel_rebuild(
        call.name, by=call.by, why=given.why, version=given.version
    )
    return Acted(changed=True)


async def swap_projection(call: Call, given: SwapProjection) -> ProjectionFigures:
    """Give readers another version of a projection in one step, once it has caught up."""
    return await call.operations.swap_projection(
        call.name,
        by=call.by,
        why=given.why,
        version=given.version,
        parked=given.parked,
        timeout=given.span,
    )


async def drop_projection(call: Call, given: ActOnVersion) -> Counted:
    """Forget a version that no worker reads for; counts what it had handed over."""
    return Counted(
        await call.operations.drop_projection(
            call.name, by=call.by, why=given.why, version=given.version
        )
    )


async def reached(call: Call, given: AwaitResult) -> Reached:
    """Wait until a projection has applied an event, for a while."""
    event = str(call.path["event"])
    try:
        await call.operations.reached(event, call.name, timeout=given.span)
    except ResultTimeoutError as error:
        return Reached(reached=False, detail=str(error))
    return Reached(reached=True)
