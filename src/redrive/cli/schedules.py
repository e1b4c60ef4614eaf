"""The commands about schedules: what is published by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.operations import Operations

__all__ = ["list_schedules", "pause", "resume", "run", "show"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def list_schedules(*, store: Store = None, json: Json = False) -> None:
    """List schedules: when they tick next, and how they fare.

    Those that no live worker declares any more have stopped.

    \b
    Example:
      redrive schedule list
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found = in_session(lambda app: app.operations.schedules(), store=store)
    if json:
        print_json({"schedules": found})
    else:
        from redrive.cli.show.schedules import schedules
        from redrive.clock import SystemClock

        print_result(*schedules(found, now=SystemClock().now()))


def show(name: Name, *, store: Store = None, json: Json = False) -> None:
    """Show one schedule: what it publishes, and its next ticks.

    \b
    Example:
      redrive schedule show nightly-report
    """  # noqa: D301 - as above
    found = in_session(lambda app: app.operations.show_schedule(name), store=store)
    if json:
        print_json(found)
    else:
        from redrive.cli.show.schedules import schedule
        from redrive.clock import SystemClock

        print_result(*schedule(found, now=SystemClock().now()))


def pause(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Publish none of its ticks until it is resumed.

    \b
    Example:
      redrive schedule pause nightly-report --why "the warehouse is moved"
    """  # noqa: D301 - as above
    _act(
        name,
        lambda operations: operations.pause_schedule(name, by=by or current_user(), why=why),
        ("Paused {}.", "{} was paused already."),
        store=store,
        json=json,
    )


def resume(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Publish its ticks again, from now on.

    \b
    Example:
      redrive schedule resume nightly-report
    """  # noqa: D301 - as above
    _act(
        name,
        lambda operations: operations.resume_schedule(name, by=by or current_user(), why=why),
        ("Resumed {}.", "{} was not paused."),
        store=store,
        json=json,
    )


def run(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Publish its event now, beside its ticks; a worker does within some seconds.

    \b
    Example:
      redrive schedule run nightly-report --why "last night's was wrong"
    """  # noqa: D301 - as above
    _act(
        name,
        lambda operations: operations.run_schedule(name, by=by or current_user(), why=why),
        (
            "A worker that declares {} publishes its event within some seconds.",
            "{} is about to be run already.",
        ),
        store=store,
        json=json,
    )


def _act(
    name: str,
    act: Callable[[Operations], Awaitable[bool]],
    sentences: tuple[str, str],
    *,
    store: str | None,
    json: bool,
) -> None:
    from redrive.cli.show.words import safe

    is_new = in_session(lambda app: act(app.operations), store=store)
    if json:
        changed, unchanged = ([name], []) if is_new else ([], [name])
        print_json({"changed": changed, "unchanged": unchanged})
    else:
        print_result(sentences[0 if is_new else 1].format(safe(name)))
    if not is_new:
        raise typer.Exit(1)
