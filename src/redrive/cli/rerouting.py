"""The commands about what goes where: remove, restore, move, fail, delete, backfill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.asking import confirm
from redrive.cli.destinations import Name
from redrive.cli.options import By, Generation, Json, Reason, Store, Why, Yes
from redrive.cli.printing import print_change, print_json, print_result, progress
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.operations import BackfillPlan
    from redrive.store import Backfilled, DestinationFigures, Moved

__all__ = ["backfill", "delete", "fail", "move", "remove", "restore"]


def remove(
    name: Name,
    *,
    why: Reason,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Route nothing to a destination any more; what waits for it is held.

    `redrive destination restore` takes it back. Of declarations, only one that was never seen does.
    """
    serving = _serving(name, store)
    if serving and not yes:
        workers = "1 live worker serves" if serving == 1 else f"{serving} live workers serve"
        confirm(f"{workers} {name}. Remove it all the same?")
    is_new = in_session(
        lambda app: app.operations.remove_destination(name, by=by or current_user(), why=why),
        store=store,
    )
    waiting = _waiting(name, store)
    if json:
        changed, unchanged = ([name], []) if is_new else ([], [name])
        print_json({"changed": changed, "unchanged": unchanged, "held": waiting.pending})
    else:
        print_result(f"Removed {name}." if is_new else f"{name} was removed already.")
        if waiting.pending:
            print_result(
                f"{_deliveries(waiting.pending)} for it {_are(waiting.pending)} held; "
                f"`redrive destination move {name} …` hands them to another."
            )
    if not is_new:
        raise typer.Exit(1)


def restore(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Take the removal of a destination back; what it missed it gets by a backfill."""
    is_new = in_session(
        lambda app: app.operations.restore_destination(name, by=by or current_user(), why=why),
        store=store,
    )
    done = (
        f"Restored {name}. What was published meanwhile it gets by "
        f"`redrive destination backfill {name}`."
    )
    print_change(name, done, f"{name} was not removed.", is_new=is_new, json=json)


def move(
    name: Annotated[str, typer.Argument(metavar="FROM", help="Where they wait.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where they go instead.")],
    *,
    why: Reason,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Hand what waits for a destination, and its dead letters, to another."""
    waiting = _waiting(name, store)
    total = waiting.pending + waiting.failed
    if total and not yes:
        confirm(
            f"Move {_deliveries(waiting.pending)} and {waiting.failed:,} dead "
            f"letter{'' if waiting.failed == 1 else 's'} of {name} to {target}?"
        )

    async def work(app: Operated) -> Moved:
        with progress("Moving", total) as advance:
            return await app.operations.move(
                name, target, by=by or current_user(), why=why, progress=advance
            )

    done = in_session(work, store=store)
    if json:
        print_json({"moved": len(done.moved), "skipped": done.skipped, "busy": done.busy})
    else:
        print_result(f"Moved {_deliveries(len(done.moved))} from {name} to {target}.")
        if done.skipped:
            print_result(
                f"{_deliveries(done.skipped)} {_were(done.skipped)} left at {name}: "
                f"{target} was given the same event before."
            )
        if done.busy:
            print_result(
                f"{_deliveries(done.busy)} {_were(done.busy)} left at {name}: one of the same key "
                f"is in flight at {target} just now. Do it again."
            )
    if done.busy:
        raise typer.Exit(1)


def fail(
    name: Name,
    *,
    why: Reason,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Make dead letters of what waits for a destination."""
    waiting = _waiting(name, store).pending
    if waiting and not yes:
        confirm(f"Make dead letters of {_deliveries(waiting)} that wait for {name}?")

    async def work(app: Operated) -> int:
        with progress("Failing", waiting) as advance:
            return await app.operations.fail_pending(
                name, by=by or current_user(), why=why, progress=advance
            )

    failed = in_session(work, store=store)
    if json:
        print_json({"failed": failed})
    else:
        letters = "1 dead letter" if failed == 1 else f"{failed:,} dead letters"
        print_result(f"Made {letters} of what waited for {name}.")


def delete(
    name: Name,
    *,
    why: Reason,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Remove what waits for a destination, for good."""
    waiting = _waiting(name, store).pending
    if waiting and not yes:
        confirm(f"Delete {_deliveries(waiting)} that wait for {name}, for good?")

    async def work(app: Operated) -> int:
        with progress("Deleting", waiting) as advance:
            return await app.operations.delete_pending(
                name, by=by or current_user(), why=why, progress=advance
            )

    deleted = in_session(work, store=store)
    if json:
        print_json({"deleted": deleted})
    else:
        print_result(f"Deleted {_deliveries(deleted)} that waited for {name}.")


def backfill(
    name: Name,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Events from 7d ago on, or an instant.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before that time.")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="GLOB", help="Of types such as order.*.")
    ] = None,
    generation: Generation = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Give a destination the events of the log that it never had."""
    from redrive.cli.reading import maybe_moment

    begin = maybe_moment(since, name="since", is_past=True)
    end = maybe_moment(until, name="until", is_past=True)

    async def look(app: Operated) -> BackfillPlan:
        return await app.operations.plan_backfill(
            name, since=begin, until=end, event_type=event_type
        )

    plan = in_session(look, store=store)
    count = len(plan.positions)
    if dry_run:
        _tell_backfill("would get", name, count, plan.overtaken, json=json)
        return
    if count and not yes:
        confirm(f"Send {_events(count)} of the log to {name}?")

    async def work(app: Operated) -> Backfilled:
        with progress("Backfilling", count) as advance:
            return await app.operations.carry_out(
                plan, by=by or current_user(), why=why, generation=generation, progress=advance
            )

    done = in_session(work, store=store)
    _tell_backfill("gets", name, done.added, done.overtaken, json=json)


def _tell_backfill(verb: str, name: str, count: int, overtaken: int, *, json: bool) -> None:
    if json:
        word = "would_add" if verb != "gets" else "added"
        print_json({word: count, "overtaken": overtaken})
        return
    print_result(f"{name} {verb} {_events(count)} of the log.")
    if overtaken:
        print_result(
            f"{_events(overtaken)} {_are(overtaken)} left out: a later one of the same key was "
            f"given to {name} before, and it keeps order."
        )


def _waiting(name: str, store: str | None) -> DestinationFigures:
    """Return the figures of a destination, which may have been removed and have nothing."""
    from redrive.store import DestinationFigures

    figures = in_session(lambda app: app.operations.status(), store=store)
    none = DestinationFigures(name=name, patterns=())
    return next((one for one in figures.destinations if one.name == name), none)


def _serving(name: str, store: str | None) -> int:
    """Return how many live workers serve a destination."""
    from redrive.operations.explain.diagnosis import is_alive

    figures = in_session(lambda app: app.operations.status(), store=store)
    alive = [one.serving for one in figures.workers if is_alive(one, figures)]
    return sum(one is not None and name in one.destinations for one in alive)


def _deliveries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
