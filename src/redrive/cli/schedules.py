"""The commands about schedules: what is published by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.documents import Documents, Keys, Versions, delete_document, show_versions
from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_change, print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.operations import Operations

__all__ = [
    "add_schedule",
    "delete_schedule",
    "list_schedules",
    "pause",
    "resume",
    "run",
    "set_schedule",
    "show",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
_STORED = Documents(
    save=lambda operations, name, document, by, why: operations.save_schedule(
        name, document, by=by, why=why, is_new=True
    ),
    alter=lambda operations, name, changes, by, why: operations.alter_schedule(
        name, changes, by=by, why=why
    ),
)


def list_schedules(*, store: Store = None, json: Json = False) -> None:
    """List schedules: when they tick next, and how they fare.

    Those that no live worker declares or publishes any more have stopped.

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


def show(
    name: Name, *, versions: Versions = False, store: Store = None, json: Json = False
) -> None:
    """Show one schedule: what it publishes, and its next ticks.

    \b
    Example:
      redrive schedule show nightly-report
    """  # noqa: D301 - as above
    if versions:
        show_versions("schedule", name, store=store, json=json)
        return
    found = in_session(lambda app: app.operations.show_schedule(name), store=store)
    if json:
        print_json(found)
    else:
        from redrive.cli.show.schedules import schedule
        from redrive.clock import SystemClock

        print_result(*schedule(found, now=SystemClock().now()))


def add_schedule(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Add a schedule; its keys are those of a file.

    Workers that serve the services of the store publish it.

    \b
    Example:
      redrive schedule add nightly event=report.due cron="0 2 * * *" payload.kind=sales
    """  # noqa: D301 - as above
    _STORED.add(name, keys, why=why, by=by, store=store, json=json)


def set_schedule(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Change keys of a schedule of the store; KEY= without a value takes one out.

    \b
    Example:
      redrive schedule set nightly cron="30 2 * * *" timezone=Europe/Berlin
    """  # noqa: D301 - as above
    _STORED.change(name, keys, why=why, by=by, store=store, json=json)


def delete_schedule(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Delete a schedule of the store, or one whose code is gone; what it has published stays.

    \b
    Example:
      redrive schedule delete nightly
    """  # noqa: D301 - as above
    delete_document(
        "schedule",
        name,
        lambda operations: operations.delete_schedule(name, by=by or current_user(), why=why),
        store=store,
        json=json,
    )


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
            "A worker publishes an event of {} within some seconds.",
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
    done, otherwise = (one.format(safe(name)) for one in sentences)
    print_change(name, done, otherwise, is_new=is_new, json=json)
