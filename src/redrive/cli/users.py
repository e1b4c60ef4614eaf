"""The commands about people: users and their passwords."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from redrive.cli.access import Destinations, RoleName, Tenant
from redrive.cli.asking import is_attended
from redrive.cli.options import By, Json, Reason, Store
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

__all__ = ["add", "list_users", "password", "remove"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]


def add(
    name: Name,
    *,
    role: RoleName,
    why: Reason,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Let only a proxy say that it is they.")
    ] = False,
    tenant: Tenant = None,
    destination: Destinations = None,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add a user; the password is asked for, or read from standard input.

    \b
    Example:
      redrive user add ann --role operate --why "joins the night shift"
    """  # noqa: D301 - the help keeps what stands below \b as it is
    secret = None if no_password else _read_password()
    user = in_session(
        lambda app: app.operations.add_user(
            name,
            secret,
            role=role,
            tenant=tenant,
            destinations=tuple(destination or ()),
            by=by or current_user(),
            why=why,
        ),
        store=store,
    )
    if json:
        print_json(user)
    else:
        print_result(f"Added {user.name}, who may {user.grant}.")


def list_users(*, store: Store = None, json: Json = False) -> None:
    """List users, and what they may."""
    found = in_session(lambda app: app.operations.users(), store=store)
    if json:
        print_json({"users": found})
    else:
        from redrive.cli.show.access import users
        from redrive.clock import SystemClock

        print_result(*users(found, now=SystemClock().now()))


def password(
    name: Name, *, why: Reason, by: By = None, store: Store = None, json: Json = False
) -> None:
    """Change a password, which ends all sessions of the user.

    It is asked for, or read from standard input.
    """
    secret = _read_password()
    in_session(
        lambda app: app.operations.set_password(name, secret, by=by or current_user(), why=why),
        store=store,
    )
    if json:
        print_json({"changed": [name]})
    else:
        print_result(f"Changed the password of {name}; all sessions have ended.")


def remove(
    name: Name, *, why: Reason, by: By = None, store: Store = None, json: Json = False
) -> None:
    """Remove a user, whose sessions all end."""
    in_session(
        lambda app: app.operations.remove_user(name, by=by or current_user(), why=why), store=store
    )
    if json:
        print_json({"changed": [name]})
    else:
        print_result(f"Removed {name}; all sessions have ended.")


def _read_password() -> str:
    """Read a password that nobody sees: no option takes one, because others see options."""
    from redrive.errors import UsageError

    if not is_attended():
        return sys.stdin.readline().rstrip("\r\n") if sys.stdin is not None else ""
    first = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != first:
        raise UsageError("The two passwords differ; nothing was changed.")
    return first
