"""The commands about projections: how far they are, pausing them, and beginning anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.asking import confirm
from redrive.cli.options import By, Json, Store, Why, Yes
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.model.gate import GateFigures
    from redrive.store import ProjectionFigures

__all__ = ["drop", "list_projections", "pause", "rebuild", "reset", "resume", "show", "swap"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The projection's name.")]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        "--from",
        metavar="POSITION",
        help="Behind which position to begin, in place of the start.",
    ),
]

Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="NUMBER",
        min=1,
        help="Which version of it; to look at, by default the one that readers have.",
    ),
]


async def _survey(app: Operated) -> tuple[Sequence[ProjectionFigures], Sequence[GateFigures]]:
    return await app.operations.projections(), await app.operations.gates()


async def _one(
    app: Operated, name: str, version: int | None
) -> tuple[ProjectionFigures, Sequence[GateFigures]]:
    figures = await app.operations.projection(name, version=version)
    return figures, await app.operations.gates()


def _destination(name: str, version: int | None, store: str | None) -> str:
    """Return the destination that a version of a projection is."""
    found = in_session(lambda app: app.operations.projection(name, version=version), store=store)
    return found.checkpoint.projection


def list_projections(*, store: Store = None, json: Json = False) -> None:
    """List projections: how far behind the log they are, and what is parked.

    \b
    Example:
      redrive projection list
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found, gates = in_session(_survey, store=store)
    from redrive.cli.show.projections import as_json, projections

    if json:
        print_json({"projections": [as_json(one, gates) for one in found]})
    else:
        print_result(*projections(found, gates))


def show(name: Name, *, version: Version = None, store: Store = None, json: Json = False) -> None:
    """Show one projection: its checkpoint, its lag by type, and what is parked.

    \b
    Example:
      redrive projection show orders
    """  # noqa: D301 - as above
    found, gates = in_session(lambda app: _one(app, name, version), store=store)
    from redrive.cli.show.projections import as_json, projection

    if json:
        print_json(as_json(found, gates))
    else:
        print_result(*projection(found, gates))


def pause(
    name: Name,
    *,
    version: Version = None,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Have a projection read nothing until it is resumed.

    \b
    Example:
      redrive projection pause orders --why "the table is moved"
    """  # noqa: D301 - as above
    from redrive.cli.destinations import pause as pause_destination

    pause_destination(_destination(name, version, store), why=why, by=by, store=store, json=json)


def resume(
    name: Name,
    *,
    version: Version = None,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Have a projection go on where it was.

    \b
    Example:
      redrive projection resume orders
    """  # noqa: D301 - as above
    from redrive.cli.destinations import resume as resume_destination

    resume_destination(_destination(name, version, store), why=why, by=by, store=store, json=json)


def reset(
    name: Name,
    *,
    version: Version = None,
    after: After = None,
    why: Why = "",
    by: By = None,
    yes: Yes = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Have a projection begin anew; its worker empties the read model with the first events.

    What failed of it is removed. From the start of the log, nothing begins if events have gone
    from it already.

    \b
    Example:
      redrive projection reset orders --why "a new column"
    """  # noqa: D301 - as above
    from redrive.cli.show.words import safe

    if not yes:
        confirm(f"Have {safe(name)} begin anew, and remove what failed of it?")
    removed = in_session(
        lambda app: app.operations.reset_projection(
            name, by=by or current_user(), why=why, version=version, after=after
        ),
        store=store,
    )
    _tell_removed(name, removed, f"{safe(name)} begins anew", json=json)


def rebuild(
    name: Name,
    *,
    version: Version = None,
    after: After = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help="At most so many events, such as 500/s."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Wait at each event that fails for somebody.")
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="End a rebuild beside what readers have."),
    ] = False,
    why: Why = "",
    by: By = None,
    yes: Yes = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Have a version of a projection made anew from the log; `projection show` tells how far it is.

    It goes on past events that fail. What people have made of events by editing them is used
    again. From the start of the log, nothing begins if events have gone from it already.

    \b
    Example:
      redrive projection rebuild orders --version 2 --rate 500/s --why "the totals were wrong"
    """  # noqa: D301 - as above
    from redrive.cli.show.words import safe

    if cancel:
        in_session(
            lambda app: app.operations.cancel_rebuild(
                name, by=by or current_user(), why=why, version=version
            ),
            store=store,
        )
        if json:
            print_json({"changed": [name]})
        else:
            print_result(f"The rebuild of {safe(name)} has ended where it was.")
        return
    if not yes:
        confirm(f"Have {safe(name)} made anew, and remove what failed of it?")
    removed = in_session(
        lambda app: app.operations.rebuild_projection(
            name,
            by=by or current_user(),
            why=why,
            version=version,
            after=after,
            rate=rate,
            strict=strict,
        ),
        store=store,
    )
    _tell_removed(name, removed, f"{safe(name)} is rebuilt", json=json)


def swap(
    name: Name,
    *,
    version: Version = None,
    parked: Annotated[
        bool, typer.Option("--parked", help="Also if events of it have failed.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="How long to wait until it is ready.")
    ] = "10s",
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Give readers another version of a projection, in one step.

    It must have caught up. The version that they had is kept, and can be swapped in again, until
    it is dropped.

    \b
    Example:
      redrive projection swap orders --version 2 --why "orders have a state"
    """  # noqa: D301 - as above
    from redrive.cli.show.words import safe

    figures = in_session(
        lambda app: app.operations.swap_projection(
            name,
            by=by or current_user(),
            why=why,
            version=version,
            parked=parked,
            timeout=timeout,
        ),
        store=store,
    )
    now = figures.checkpoint.version
    if json:
        print_json({"changed": [name], "version": now})
    else:
        print_result(f"Readers of {safe(name)} have version {now}.")


def drop(
    name: Name,
    *,
    version: Version = None,
    why: Why = "",
    by: By = None,
    yes: Yes = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Forget a version, or a whole projection, that is no longer in any app.

    The tables of a version go with it, but for those of the last one. Until then, events that it
    has not read are kept, however old they are.

    \b
    Example:
      redrive projection drop orders --version 1 --why "nobody wants it back"
    """  # noqa: D301 - as above
    from redrive.cli.show.words import safe

    if not yes:
        what = safe(name) if version is None else f"version {version} of {safe(name)}"
        confirm(f"Forget {what}, and remove what failed of it?")
    removed = in_session(
        lambda app: app.operations.drop_projection(
            name, by=by or current_user(), why=why, version=version
        ),
        store=store,
    )
    which = "" if version is None else f"Version {version} of "
    _tell_removed(name, removed, f"{which}{safe(name)} is forgotten", json=json)


def _tell_removed(name: str, removed: int, sentence: str, *, json: bool) -> None:
    """Say what has become of a projection, and how many deliveries went with it."""
    from redrive.cli.show.words import counted

    if json:
        print_json({"changed": [name], "removed": removed})
    else:
        print_result(f"{sentence}; {counted(removed, 'delivery was', 'deliveries were')} removed.")
