"""The commands about events: find them, and see what became of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Cursor, Json, Limit, Reveal, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.operations import EventStory

__all__ = ["list_events", "show_event"]


def list_events(
    *,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="GLOB", help="Of types such as order.*.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Of this key.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant.")] = None,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="From this source.")] = None,
    status: Annotated[
        str,
        typer.Option(
            metavar="STATUS",
            help="With a delivery that is pending, in_flight, delivered or failed; any.",
        ),
    ] = "any",
    unrouted: Annotated[
        bool, typer.Option("--unrouted", help="That no destination was given.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From 2h ago on, or from 2026-01-31.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before that time.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List events and what became of them, the latest first."""
    from redrive.cli.reading import maybe_moment, read_status
    from redrive.model.pattern import check_pattern
    from redrive.store import EventQuery

    query = EventQuery(
        event_type=None if event_type is None else check_pattern(event_type),
        key=key,
        tenant=tenant,
        source=source,
        status=read_status(status),
        unrouted=unrouted,
        since=maybe_moment(since, name="since", is_past=True),
        until=maybe_moment(until, name="until", is_past=True),
    )
    page = in_session(
        lambda app: app.operations.find_events(query, cursor=cursor, limit=limit), store=store
    )
    if json:
        print_json({"events": page.events, "next_cursor": page.next_cursor})
    else:
        from redrive.cli.show.events import events
        from redrive.clock import SystemClock

        is_filtered = query != EventQuery()
        print_result(*events(page, now=SystemClock().now(), is_filtered=is_filtered))


def show_event(
    event_id: Annotated[
        str, typer.Argument(metavar="ID", help="The event's id, or a delivery's number.")
    ],
    *,
    reveal: Reveal = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Show one event, and the story of each of its deliveries."""
    from redrive.cli.naming import check_names, event_of

    check_names([event_id])

    async def work(app: Operated) -> EventStory:
        wanted = await event_of(app, event_id)
        if reveal:
            return await app.operations.reveal_event(wanted, by=by or current_user(), why=why)
        return await app.operations.show_event(wanted)

    told = in_session(work, store=store)
    if json:
        print_json(
            {
                "event": told.event,
                "version": told.found.version,
                "destinations": told.found.destinations,
                "deliveries": told.found.deliveries,
                "stories": [
                    {"delivery": one.delivery, "group": one.group, "waiting": one.waiting}
                    for one in told.stories
                ],
            }
        )
    else:
        from redrive.cli.show.events import event
        from redrive.clock import SystemClock

        print_result(*event(told, now=SystemClock().now()))
