"""The commands about secrets: set, listed, encrypted anew and deleted; no command shows one."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from redrive.cli.asking import is_attended
from redrive.cli.options import By, Json, Reason, Store
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

__all__ = ["delete", "list_secrets", "rotate", "set_secret"]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name, such as crm-token.")]


def set_secret(
    name: Name, *, why: Reason, by: By = None, store: Store = None, json: Json = False
) -> None:
    """Keep a secret, encrypted; it is asked for, or read from standard input.

    It is never an argument, which others could see in the list of processes. What refers to it as
    secret:NAME goes by it within seconds.

    \b
    Example:
      redrive secret set crm-token --why "the new contract" < token.txt
    """  # noqa: D301 - the help keeps what stands below \b as it is
    value = _read_value(name)
    kept = in_session(
        lambda app: app.operations.set_secret(name, value, by=by or current_user(), why=why),
        store=store,
    )
    if json:
        print_json(kept)
    else:
        print_result(
            f"Set {kept.name}, version {kept.version}, encrypted by the key {kept.key_id}."
        )


def list_secrets(*, store: Store = None, json: Json = False) -> None:
    """List secrets: who set them when, and which key each is encrypted by."""
    found = in_session(lambda app: app.operations.secrets(), store=store)
    if json:
        print_json({"secrets": found})
    else:
        from redrive.cli.show.access import secrets
        from redrive.clock import SystemClock

        print_result(*secrets(found, now=SystemClock().now()))


def rotate(*, why: Reason, by: By = None, store: Store = None, json: Json = False) -> None:
    """Encrypt all secrets by the first of the keys; the others can go after that.

    \b
    Example:
      redrive secret rotate --why "once a year"
    """  # noqa: D301 - as above
    done = in_session(
        lambda app: app.operations.rotate_secrets(by=by or current_user(), why=why), store=store
    )
    if json:
        print_json(done)
    elif not done.rotated:
        print_result(f"All {len(done.unchanged)} are encrypted by the key {done.key_id} already.")
    else:
        others = f"; {len(done.unchanged)} were already" if done.unchanged else ""
        print_result(f"Encrypted {len(done.rotated)} by the key {done.key_id}{others}.")


def delete(
    name: Name, *, why: Reason, by: By = None, store: Store = None, json: Json = False
) -> None:
    """Delete a secret for good; what refers to it fails from then on.

    \b
    Example:
      redrive secret delete crm-token --why "the contract has ended"
    """  # noqa: D301 - as above
    in_session(
        lambda app: app.operations.delete_secret(name, by=by or current_user(), why=why),
        store=store,
    )
    if json:
        print_json({"changed": [name], "unchanged": []})
    else:
        print_result(f"Deleted {name}.")


def _read_value(name: str) -> str:
    if is_attended():
        return getpass.getpass(f"The secret {name} (it is not shown): ")
    return sys.stdin.read().rstrip("\r\n")
