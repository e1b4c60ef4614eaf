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
    from redrive.app.redrive import Redrive
    from redrive.model.gate import GateFigures
    from redrive.store import ProjectionFigures

__all__ = ["drop", "list_projections", "pause", "reset", "resume", "show"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The projection's name.")]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="POSITION", help="Behind which position to begin, in place of the start."
    ),
]


async def _survey(app: Redrive) -> tuple[Sequence[ProjectionFigures], Sequence[GateFigures]]:
    return await app.operations.projections(), await app.operations.gates()


async def _one(app: Redrive, name: str) -> tuple[ProjectionFigures, Sequence[GateFigures]]:
    return await app.operations.projection(name), await app.operations.gates()


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


def show(name: Name, *, store: Store = None, json: Json = False) -> None:
    """Show one projection: its checkpoint, its lag by type, and what is parked.

    \b
    Example:
      redrive projection show orders
    """  # noqa: D301 - as above
    found, gates = in_session(lambda app: _one(app, name), store=store)
    from redrive.cli.show.projections import as_json, projection

    if json:
        print_json(as_json(found, gates))
    else:
        print_result(*projection(found, gates))


def pause(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a projection read nothing until it is resumed.

    \b
    Example:
      redrive projection pause orders --why "the table is moved"
    """  # noqa: D301 - as above
    from redrive.cli.destinations import pause as pause_destination

    in_session(lambda app: app.operations.projection(name), store=store)
    pause_destination(name, why=why, by=by, store=store, json=json)


def resume(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a projection go on where it was.

    \b
    Example:
      redrive projection resume orders
    """  # noqa: D301 - as above
    from redrive.cli.destinations import resume as resume_destination

    in_session(lambda app: app.operations.projection(name), store=store)
    resume_destination(name, why=why, by=by, store=store, json=json)


def reset(
    name: Name,
    *,
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
    from redrive.cli.show.words import counted, safe

    if not yes:
        confirm(f"Have {safe(name)} begin anew, and remove what failed of it?")
    removed = in_session(
        lambda app: app.operations.reset_projection(
            name, by=by or current_user(), why=why, after=after
        ),
        store=store,
    )
    if json:
        print_json({"changed": [name], "removed": removed})
    else:
        letters = counted(removed, "delivery was", "deliveries were")
        print_result(f"{safe(name)} begins anew; {letters} removed.")


def drop(
    name: Name,
    *,
    why: Why = "",
    by: By = None,
    yes: Yes = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Forget a projection that is no longer in any app; its read model stays.

    Until then, events that it has not read are kept, however old they are.

    \b
    Example:
      redrive projection drop orders --why "replaced by sales"
    """  # noqa: D301 - as above
    from redrive.cli.show.words import counted, safe

    if not yes:
        confirm(f"Forget {safe(name)}, and remove what failed of it?")
    removed = in_session(
        lambda app: app.operations.drop_projection(name, by=by or current_user(), why=why),
        store=store,
    )
    if json:
        print_json({"changed": [name], "removed": removed})
    else:
        letters = counted(removed, "delivery was", "deliveries were")
        print_result(f"{safe(name)} is forgotten; {letters} removed.")
