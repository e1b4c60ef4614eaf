"""Keeping: what is pruned, exported and restored, and what goes where."""

from __future__ import annotations

from redrive.archive import read_line
from redrive.errors import ResultTimeoutError
from redrive.operations import BackfillPlan, PrunePlan
from redrive.store import Backfilled, LetterPage, Moved, ProjectionFigures, Restored
from redrive.web.answers import Acted, Counted, Miscounts, Projections, Reached
from redrive.web.requests import (
    Act,
    ActWithReason,
    AwaitResult,
    ListDeadLetters,
    MoveDeliveries,
    Nothing,
    PlanBackfill,
    ResetProjection,
    RestoreLetters,
    RunBackfill,
)
from redrive.web.route import Call

__all__ = [
    "backfill",
    "delete_pending",
    "drop_projection",
    "export_page",
    "fail_pending",
    "move",
    "plan_backfill",
    "projection",
    "projections",
    "prunable",
    "prune",
    "reached",
    "recount",
    "remove_destination",
    "reset_projection",
    "restore",
    "restore_destination",
]


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
    return await call.operations.restore(letters, by=call.by, why=given.why)


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
    return await call.operations.backfill(
        call.name, by=call.by, why=given.why, generation=given.generation, **given.given
    )


async def projections(call: Call, _: Nothing) -> Projections:
    """Return the projections, and how far each is."""
    return Projections(await call.operations.projections())


async def projection(call: Call, _: Nothing) -> ProjectionFigures:
    """Return one projection, and how far it is."""
    return await call.operations.projection(call.name)


async def reset_projection(call: Call, given: ResetProjection) -> Counted:
    """Have a projection begin anew; counts what it had handed over, which is removed."""
    return Counted(
        await call.operations.reset_projection(
            call.name, by=call.by, why=given.why, after=given.after
        )
    )


async def drop_projection(call: Call, given: Act) -> Counted:
    """Forget a projection that no worker reads for; counts what it had handed over."""
    return Counted(await call.operations.drop_projection(call.name, by=call.by, why=given.why))


async def reached(call: Call, given: AwaitResult) -> Reached:
    """Wait until a projection has applied an event, for a while."""
    event = str(call.path["event"])
    try:
        await call.operations.reached(event, call.name, timeout=given.span)
    except ResultTimeoutError as error:
        return Reached(reached=False, detail=str(error))
    return Reached(reached=True)
