"""The commands about tenants: how they share destinations, and their pauses."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import By, Json, Limit, Reason, Store, Why
from redrive.cli.printing import print_change, print_json, print_result
from redrive.cli.session import current_user, in_session

__all__ = ["list_tenants", "pause_tenant", "resume_tenant"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
Where = Annotated[
    str | None,
    typer.Option("--destination", metavar="NAME", help="Only there; everywhere if left out."),
]


def list_tenants(
    *,
    destination: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this destination.")
    ] = None,
    limit: Limit = 20,
    store: Store = None,
    json: Json = False,
) -> None:
    """List tenants: what they have waiting, what they got, and what holds them."""
    found = in_session(
        lambda app: app.operations.tenants(destination=destination, limit=limit), store=store
    )
    if json:
        print_json({"tenants": found})
    else:
        from redrive.cli.show.tenants import tenants
        from redrive.clock import SystemClock

        print_result(*tenants(found, now=SystemClock().now(), limit=limit))


def pause_tenant(
    name: Name,
    *,
    why: Reason,
    destination: Where = None,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Stop a tenant; its deliveries wait, and those of others go on."""
    from redrive.errors import UsageError

    if not why:
        raise UsageError("A reason is needed to pause a tenant; say why.")
    is_new = in_session(
        lambda app: app.operations.pause_tenant(
            name, by=by or current_user(), why=why, destination=destination
        ),
        store=store,
    )
    where = _where(name, destination)
    done, otherwise = f"Paused {where}.", f"{where} was paused already."
    print_change(name, done, otherwise, is_new=is_new, json=json)


def resume_tenant(
    name: Name,
    *,
    why: Why = "",
    destination: Where = None,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Let a paused tenant go on."""
    is_new = in_session(
        lambda app: app.operations.resume_tenant(
            name, by=by or current_user(), why=why, destination=destination
        ),
        store=store,
    )
    where = _where(name, destination)
    done, otherwise = f"Resumed {where}.", f"{where} was not paused."
    print_change(name, done, otherwise, is_new=is_new, json=json)


def _where(name: str, destination: str | None) -> str:
    from redrive.cli.show.words import safe

    return (
        f"{safe(name)} everywhere"
        if destination is None
        else f"{safe(name)} at {safe(destination)}"
    )
