"""The commands that change something: init, publish, and acts on deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.asking import confirm
from redrive.cli.options import (
    AllMatching,
    By,
    Filters,
    Generation,
    Ids,
    Json,
    Letters,
    OutOfOrder,
    Reason,
    RenderAgain,
    Store,
    Target,
    Why,
    Yes,
    with_filters,
    with_open_filters,
)
from redrive.cli.printing import print_json, print_result, print_warning, progress
from redrive.cli.session import (
    chosen_store,
    current_user,
    in_session,
    settings_of,
    store_name,
)

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.operations import Operations

__all__ = [
    "cancel",
    "delete",
    "init",
    "prioritise",
    "publish",
    "reopen",
    "replay",
    "reschedule",
    "resolve",
]

_PAGE = 1_000
_MOST_EXPLAINED = 1_000
_NOT_THERE = "not there"


def init(target: Target = None, *, store: Store = None, json: Json = False) -> None:
    """Create the store, or bring its schema up to date."""

    async def migrate(app: Operated) -> tuple[str, int]:
        settings = settings_of(app)
        name = "" if settings is None else store_name(settings.store)
        return name, await app.operations.schema_version()

    name, version = in_session(migrate, store=chosen_store(target, store), creates=True)
    if json:
        print_json({"store": name, "schema_version": version})
    else:
        print_result(f"The store {name} is ready, with schema version {version}.")


def publish(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as order.paid.")],
    payload: Annotated[
        str | None,
        typer.Argument(help="JSON, @file or - for standard input; null if left out."),
    ] = None,
    *,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="What it is about.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose event it is.")] = None,
    source: Annotated[str, typer.Option(metavar="NAME", help="Where it comes from.")] = "",
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Publish only once under this key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    severity: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
    priority: Annotated[
        int, typer.Option(min=-100, max=100, metavar="N", help="The higher one goes first.")
    ] = 0,
    generation: Annotated[
        str | None, typer.Option(metavar="NAME", help="The generation that delivers it.")
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it happened: 2h ago, or an instant.")
    ] = None,
    due: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before: in 5m, or an instant.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not after: in 1d, or an instant.")
    ] = None,
    expected_version: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only if its key has had this many events."),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="To this destination alone; may be repeated."),
    ] = None,
    unique_for: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Not if the same was published within this time."),
    ] = None,
    unique_by: Annotated[
        str | None, typer.Option(metavar="NAME", help="What is the same, with --unique-for.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Publish an event; ends when it is stored."""
    from redrive.cli.reading import maybe_moment, read_choice, read_headers, read_payload
    from redrive.cli.show.receipt import receipt as shown
    from redrive.model.event import EventAttributes, Severity

    body = read_payload(payload)
    attributes = EventAttributes(
        key=key,
        tenant=tenant,
        source=source,
        idempotency_key=idempotency_key,
        headers=read_headers(header or []),
        severity=read_choice(Severity, severity, name="severity"),
        priority=priority,
        generation=generation,
        occurred_at=maybe_moment(occurred_at, name="occurred-at", is_past=True),
        due=maybe_moment(due, name="due"),
        deadline=maybe_moment(deadline, name="deadline"),
        expected_version=expected_version,
        to=to or None,
        unique_for=unique_for,
        unique_by=unique_by,
    )
    receipt = in_session(lambda app: app.publish(event_type, body, **attributes), store=store)
    if json:
        print_json(receipt)
    else:
        print_result(shown(receipt))
        if not receipt.is_routed:
            print_warning(
                f"no destination wants {event_type}, so it is kept in the log and goes nowhere."
            )


@with_open_filters
def replay(
    filters: Filters,
    ids: Letters = None,
    *,
    all_matching: AllMatching = False,
    yes: Yes = False,
    generation: Generation = None,
    render_again: RenderAgain = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Send dead letters again: the ones named, a group, or all that match."""
    chosen = _choose("replay", ids, filters, all_matching=all_matching, yes=yes, store=store)

    async def act(operations: Operations, some: Sequence[int]) -> Sequence[int]:
        who = by or current_user()
        if render_again:
            await operations.render_again(some, by=who, why=why)
        return await operations.replay(some, by=who, why=why, generation=generation)

    _change(act, chosen, done="Replayed", needs=("a dead letter",), store=store, json=json)


@with_filters
def delete(
    filters: Filters,
    ids: Letters = None,
    *,
    why: Reason,
    all_matching: AllMatching = False,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Remove dead letters for good; the reason stays in the audit log."""
    _change(
        lambda operations, some: operations.delete(some, by=by or current_user(), why=why),
        _choose("delete", ids, filters, all_matching=all_matching, yes=yes, store=store),
        done="Deleted",
        needs=("a dead letter", "resolved"),
        store=store,
        json=json,
    )


@with_open_filters
def resolve(
    filters: Filters,
    ids: Letters = None,
    *,
    why: Reason,
    all_matching: AllMatching = False,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Mark dead letters as handled elsewhere; they stay, out of the way."""
    _change(
        lambda operations, some: operations.resolve(some, by=by or current_user(), why=why),
        _choose("resolve", ids, filters, all_matching=all_matching, yes=yes, store=store),
        done="Resolved",
        needs=("a dead letter",),
        store=store,
        json=json,
    )


@with_open_filters
def reopen(
    filters: Filters,
    ids: Letters = None,
    *,
    why: Reason,
    all_matching: AllMatching = False,
    out_of_order: OutOfOrder = False,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Make dead letters of resolved ones again."""
    _change(
        lambda operations, some: operations.reopen(
            some, by=by or current_user(), why=why, out_of_order=out_of_order
        ),
        _choose(
            "reopen",
            ids,
            filters,
            all_matching=all_matching,
            yes=yes,
            resolved=True,
            store=store,
        ),
        done="Reopened",
        needs=("resolved",),
        store=store,
        json=json,
    )


def cancel(
    ids: Ids, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Give up pending deliveries; they become dead letters."""
    _change(
        lambda operations, some: operations.cancel(some, by=by or current_user(), why=why),
        ids,
        done="Cancelled",
        needs=("pending",),
        store=store,
        json=json,
    )


def reschedule(
    ids: Ids,
    *,
    due: Annotated[str, typer.Option(metavar="TIME", help="In 5m, or an instant; 0s is now.")],
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Move the due time of pending deliveries."""
    from redrive.cli.reading import read_moment

    when = read_moment(due, name="due")
    _change(
        lambda operations, some: operations.reschedule(
            some, due=when, by=by or current_user(), why=why
        ),
        ids,
        done="Rescheduled",
        needs=("pending",),
        store=store,
        json=json,
    )


def prioritise(
    ids: Ids,
    *,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, metavar="N", help="The higher one goes first.")
    ],
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Change the priority of pending deliveries."""
    _change(
        lambda operations, some: operations.prioritise(
            some, priority=priority, by=by or current_user(), why=why
        ),
        ids,
        done="Prioritised",
        needs=("pending",),
        store=store,
        json=json,
    )


def _choose(
    verb: str,
    ids: Sequence[str] | None,
    filters: Filters,
    *,
    all_matching: bool,
    yes: bool,
    store: str | None,
    resolved: bool = False,
) -> Sequence[str] | Sequence[int]:
    """Return the ids that were named, or those of all that match now; these are asked about."""
    from msgspec.structs import replace

    from redrive.cli.reading import read_query
    from redrive.errors import UsageError

    is_search = all_matching or filters.group is not None
    if bool(ids) == is_search or (ids and filters != Filters()):
        raise UsageError(
            f"Name the dead letters to {verb} by their ids, or {verb} a group with --group, or "
            "all that match filters with --all-matching."
        )
    if ids:
        return ids
    query = read_query(filters)
    found = in_session(
        lambda app: app.operations.select(query, resolved=resolved),
        store=store,
        query=replace(query, with_resolved=query.with_resolved or resolved),
    )
    if found and not yes:
        what = "resolved dead letter" if resolved else "dead letter"
        confirm(f"{verb.capitalize()} {len(found):,} {what}{'' if len(found) == 1 else 's'}?")
    return found


def _change(
    act: Callable[[Operations, Sequence[int]], Awaitable[Sequence[int]]],
    ids: Sequence[str] | Sequence[int],
    *,
    done: str,
    needs: tuple[str, ...],
    store: str | None,
    json: bool,
) -> None:
    """Act on deliveries, some at a time so that workers get their turn, and say what changed."""
    from redrive.cli.naming import check_names, numbers_of
    from redrive.model.delivery import DeliveryId

    names = [str(one) for one in ids]
    check_names(names)

    async def change(app: Operated) -> tuple[list[int], dict[int, str | None]]:
        asked = await numbers_of(app, names, needs=needs)
        changed: list[int] = []
        with progress(done, len(asked)) as advance:
            for begin in range(0, len(asked), _PAGE):
                some = asked[begin : begin + _PAGE]
                changed += await act(app.operations, some)
                advance(len(some))
        left = sorted(set(asked).difference(changed))
        conditions = await app.operations.conditions(left[:_MOST_EXPLAINED])
        return changed, {one: conditions.get(DeliveryId(one)) for one in left}

    changed, left = in_session(change, store=store)
    if json:
        print_json({"changed": changed, "unchanged": list(left), "left_alone": _reasons(left)})
    else:
        from redrive.cli.show.deliveries import changed as shown

        print_result(*shown(done, changed, _reasons(left), needs=needs))
    if left:
        raise typer.Exit(1)


def _reasons(left: Mapping[int, str | None]) -> dict[str, list[int]]:
    """Return what was left alone, by how it stands; of very many the rest is not looked at."""
    reasons: dict[str, list[int]] = {}
    for place, (one, condition) in enumerate(left.items()):
        why = condition or _NOT_THERE if place < _MOST_EXPLAINED else "not looked at"
        reasons.setdefault(why, []).append(one)
    return reasons
