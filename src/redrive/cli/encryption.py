"""The commands about encryption at rest: begun, looked at, finished by hand, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Json, Reason, Store
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.model.encryption import Encryption

__all__ = ["finish", "off", "on", "show"]

Wait = Annotated[
    bool, typer.Option("--wait", help="Rewrite what is there now, and do not leave it to workers.")
]


def on(
    *, why: Reason, by: By = None, wait: Wait = False, store: Store = None, json: Json = False
) -> None:
    """Encrypt payloads by the first of the keys; again, after another key was put in front of it.

    All who publish and all workers need the key before. What is there already is encrypted by
    workers, a few rows at a time, while everything goes on.

    \b
    Example:
      redrive encryption on --why "customers' addresses are in there"
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found = in_session(
        lambda app: app.operations.encrypt(by=by or current_user(), why=why), store=store
    )
    _tell(_finished(store) if wait else found, json=json)


def off(
    *, why: Reason, by: By = None, wait: Wait = False, store: Store = None, json: Json = False
) -> None:
    """Keep payloads as they are from now on; what is encrypted is decrypted by workers.

    \b
    Example:
      redrive encryption off --why "the disk is encrypted"
    """  # noqa: D301 - as above
    found = in_session(
        lambda app: app.operations.decrypt(by=by or current_user(), why=why), store=store
    )
    _tell(_finished(store) if wait else found, json=json)


def show(*, store: Store = None, json: Json = False) -> None:
    """Tell by which key payloads are encrypted, and how far what was there before has come."""
    _tell(in_session(lambda app: app.operations.encryption(), store=store), json=json)


def finish(*, store: Store = None, json: Json = False) -> None:
    """Rewrite what is still to be encrypted or decrypted, as workers do by themselves."""
    _tell(_finished(store), json=json)


def _finished(store: str | None) -> Encryption | None:
    return in_session(lambda app: app.operations.finish_encryption(), store=store)


def _tell(found: Encryption | None, *, json: bool) -> None:
    if json:
        print_json({"encryption": found})
        return
    if found is None or not (found.key_id or found.is_under_way):
        print_result("Payloads are kept as they are.")
        return
    how = (
        f"Payloads are encrypted by the key {found.key_id}"
        if found.key_id
        else "Payloads are kept as they are from now on"
    )
    if not found.is_under_way:
        print_result(f"{how}, all of them.")
        return
    share = min(found.done, found.at_most)
    print_result(
        f"{how}. What was there before follows: {found.changed:,} rewritten, "
        f"{share:,} of at most {found.at_most:,} rows looked at in this round.{_needed(found)}"
    )


def _needed(found: Encryption) -> str:
    if not found.former:
        return ""
    keys = "key" if len(found.former) == 1 else "keys"
    return f" Until then the {keys} {', '.join(found.former)} must stay."
