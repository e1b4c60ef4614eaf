"""The commands that look: status, lists, one delivery, the audit log, the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.destinations import survey
from redrive.cli.options import (
    By,
    Cursor,
    Filters,
    Id,
    Json,
    Limit,
    Reveal,
    Store,
    Target,
    Why,
    with_filters,
)
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import chosen_store, current_user, in_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.cli.session import Operated
    from redrive.model.audit import AuditEntry
    from redrive.model.delivery import Status
    from redrive.model.gate import GateFigures
    from redrive.operations import ScheduleFigures, Story
    from redrive.store import Figures, Finding, Group, ProjectionFigures

__all__ = [
    "audit",
    "doctor",
    "groups",
    "list_dead_letters",
    "list_deliveries",
    "show",
    "status",
    "tell",
]


def status(target: Target = None, *, store: Store = None, json: Json = False) -> None:
    """Show destinations, workers and totals, and what needs attention."""

    async def look(
        app: Operated,
    ) -> tuple[
        Figures,
        Sequence[GateFigures],
        Sequence[ScheduleFigures],
        Sequence[ProjectionFigures],
    ]:
        schedules = await app.operations.schedules()
        return (*await survey(app), schedules, await app.operations.projections())

    figures, gates, schedules, projections = in_session(look, store=chosen_store(target, store))
    if json:
        from msgspec.structs import asdict

        from redrive.cli.show.projections import as_json

        read = [as_json(one, gates) for one in projections]
        print_json({**asdict(figures), "gates": gates, "schedules": schedules, "projections": read})
    else:
        from redrive.cli.show.status import status as shown

        print_result(*shown(figures, gates, schedules, projections))


@with_filters
def list_dead_letters(
    filters: Filters,
    *,
    limit: Limit = 20,
    cursor: Cursor = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List dead letters, the latest first."""
    from redrive.model.delivery import Status

    _list(filters, Status.FAILED, limit=limit, cursor=cursor, store=store, json=json)


@with_filters
def groups(filters: Filters, *, limit: Limit = 20, store: Store = None, json: Json = False) -> None:
    """Show dead letters by what they failed of, the largest group first."""
    from redrive.cli.reading import read_query

    query = read_query(filters)

    async def look(app: Operated) -> tuple[Sequence[Group], int]:
        return (
            await app.operations.groups(query, limit=limit),
            await app.operations.outdated_groups(),
        )

    found, outdated = in_session(look, store=store, query=query)
    if json:
        print_json({"groups": found, "outdated": outdated})
    else:
        from redrive.cli.show.groups import groups as shown
        from redrive.clock import SystemClock

        is_filtered = filters != Filters()
        now = SystemClock().now()
        print_result(
            *shown(found, now=now, limit=limit, is_filtered=is_filtered, outdated=outdated)
        )


@with_filters
def list_deliveries(
    filters: Filters,
    *,
    status: Annotated[
        str, typer.Option(metavar="STATUS", help="pending, in_flight, delivered, failed or any.")
    ] = "pending",
    limit: Limit = 20,
    cursor: Cursor = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List deliveries of one status, or of any, the latest first."""
    from redrive.cli.reading import read_status

    _list(filters, read_status(status), limit=limit, cursor=cursor, store=store, json=json)


def show(
    delivery_id: Id,
    *,
    reveal: Reveal = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Show one delivery with its whole story, and what to do next."""
    from redrive.cli.naming import number_of

    told = tell(number_of(delivery_id, store=store), reveal=reveal, by=by, why=why, store=store)
    if json:
        print_json(told)
    else:
        from redrive.cli.show.story import story
        from redrive.clock import SystemClock

        print_result(*story(told, now=SystemClock().now()))


def tell(delivery_id: int, *, reveal: bool, by: str | None, why: str, store: str | None) -> Story:
    """Return a delivery's story: with its secrets blanked, or revealed to somebody on record."""

    async def work(app: Operated) -> Story:
        if reveal:
            return await app.operations.reveal(delivery_id, by=by or current_user(), why=why)
        return await app.operations.show(delivery_id)

    return in_session(work, store=store)


def audit(
    *,
    before: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only entries before this one."),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Only what they did.")] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Only such as replay, resolve or pause.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Only about a delivery, an event, a destination or a tenant."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From 2h ago on, or from 2026-01-31.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before that time.")] = None,
    limit: Limit = 20,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show who changed what, when and why."""
    from redrive.cli.naming import deliveries_of
    from redrive.cli.reading import check_numbers, maybe_moment
    from redrive.model.audit import AuditQuery

    check_numbers([] if before is None else [before])
    start = maybe_moment(since, name="since", is_past=True)
    end = maybe_moment(until, name="until", is_past=True)

    async def look(app: Operated) -> Sequence[AuditEntry]:
        ids = None if target is None else await deliveries_of(app, target)
        query = AuditQuery(
            by=by,
            action=None if action is None else action.replace("-", "_"),
            deliveries=ids,
            name=target if ids is None else None,
            since=start,
            until=end,
        )
        return await app.operations.audit(query, before=before, limit=limit)

    entries = in_session(look, store=store)
    if json:
        print_json({"entries": entries})
    else:
        from redrive.cli.show.audit import audit as shown
        from redrive.clock import SystemClock

        is_filtered = not (by is action is target is since is until is None)
        now = SystemClock().now()
        print_result(*shown(entries, now=now, limit=limit, is_filtered=is_filtered))


def doctor(
    target: Target = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Fail by warnings too.")] = False,
    recount: Annotated[
        bool, typer.Option("--recount", help="First count everything anew, and keep that.")
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Examine the store and the system, and say what to do."""
    from redrive.errors import StoreError
    from redrive.store import Finding, Level

    async def examine(app: Operated) -> Sequence[Finding]:
        if recount:
            await app.operations.recount()
        return await app.operations.examine()

    chosen = chosen_store(target, store)
    try:
        found = in_session(examine, store=chosen)
    except StoreError as error:
        from redrive.cli.journal import examine_journal

        found = (Finding(level=Level.ERROR, what=str(error)), *examine_journal(chosen))
    if json:
        print_json({"findings": found})
    else:
        from redrive.cli.show.findings import findings

        print_result(*findings(found))
    failing = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    if any(one.level in failing for one in found):
        raise typer.Exit(1)


def _list(
    filters: Filters,
    status: Status | None,
    *,
    limit: int,
    cursor: str | None,
    store: str | None,
    json: bool,
) -> None:
    from redrive.cli.reading import read_query

    query = read_query(filters, status=status)
    page = in_session(
        lambda app: app.operations.deliveries(query, cursor=cursor, limit=limit),
        store=store,
        query=query,
    )
    if json:
        print_json(page)
    else:
        from redrive.cli.show.deliveries import deliveries
        from redrive.clock import SystemClock

        is_filtered = filters != Filters()
        shown = deliveries(page, status, now=SystemClock().now(), is_filtered=is_filtered)
        print_result(*shown)
