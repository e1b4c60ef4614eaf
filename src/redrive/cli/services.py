"""The commands about services: list, show, add, set, try, enable, disable and delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.documents import (
    Documents,
    Keys,
    Versions,
    delete_document,
    show_document,
    show_versions,
)
from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

__all__ = [
    "add_service",
    "delete_service",
    "disable_service",
    "enable_service",
    "list_services",
    "log",
    "set_service",
    "show_service",
    "try_service",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]
_SERVICES = Documents(
    save=lambda operations, name, document, by, why: operations.save_service(
        name, document, by=by, why=why, is_new=True
    ),
    alter=lambda operations, name, changes, by, why: operations.alter_service(
        name, changes, by=by, why=why
    ),
)


def list_services(*, store: Store = None, json: Json = False) -> None:
    """List the services that the store describes.

    \b
    Example:
      redrive service list
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found = in_session(lambda app: app.operations.services(), store=store)
    if json:
        print_json({"services": found})
    else:
        from redrive.cli.show.gateway import services

        print_result(*services(found))


def show_service(
    name: Name, *, versions: Versions = False, store: Store = None, json: Json = False
) -> None:
    """Show one service, as a file has it, and its version.

    \b
    Example:
      redrive service show crm
    """  # noqa: D301 - as above
    if versions:
        show_versions("service", name, store=store, json=json)
        return
    [found] = in_session(lambda app: app.operations.services(name=name), store=store)
    show_document(found, json=json)


def add_service(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Add a service; its keys are those of a file.

    \b
    Example:
      redrive service add crm url=https://api.example.com/hooks auth.bearer=env:CRM_TOKEN
    """  # noqa: D301 - as above
    _SERVICES.add(name, keys, why=why, by=by, store=store, json=json)


def set_service(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Change keys of a service; KEY= without a value takes one out.

    Workers follow within seconds.

    \b
    Example:
      redrive service set crm rate=10/s timeout=5s
    """  # noqa: D301 - as above
    _SERVICES.change(name, keys, why=why, by=by, store=store, json=json)


def enable_service(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Serve a service again; what waits for it is sent.

    \b
    Example:
      redrive service enable crm
    """  # noqa: D301 - as above
    _SERVICES.switch(name, enabled=True, why=why, by=by, store=store, json=json)


def disable_service(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Send a service nothing; what it gets waits, and nothing is lost.

    \b
    Example:
      redrive service disable crm --why "they move to another data centre"
    """  # noqa: D301 - as above
    _SERVICES.switch(name, enabled=False, why=why, by=by, store=store, json=json)


def log(
    name: Name,
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")
    ] = 20,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show the last requests to a service, successes too: status, latency, attempt.

    \b
    Example:
      redrive service log crm --limit 5
    """  # noqa: D301 - as above
    found = in_session(lambda app: app.operations.request_log(name, limit=limit), store=store)
    if json:
        print_json({"requests": found})
    else:
        from redrive.cli.show.gateway import requests

        print_result(*requests(found))


def try_service(
    name: Name,
    payload: Annotated[
        str, typer.Argument(metavar="[PAYLOAD]", help="What to send, as JSON.")
    ] = "null",
    *,
    event_type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="The type of the event that is sent.")
    ] = "test",
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Its key.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Its tenant.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="The rule that gives it its shape, enabled or not."),
    ] = None,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Send one request to a service now, and show it and the answer without secrets.

    It goes through the gate of the service, as deliveries do, and leaves no delivery.

    \b
    Example:
      redrive service test crm '{"order": 42}' --type order.paid --rule orders
    """  # noqa: D301 - as above
    from redrive.cli.reading import read_payload
    from redrive.cli.show.gateway import tested

    sent = read_payload(payload)
    done = in_session(
        lambda app: app.operations.try_service(
            name,
            sent,
            type=event_type,
            key=key,
            tenant=tenant,
            rule=rule,
            by=by or current_user(),
            why=why,
        ),
        store=store,
    )
    if json:
        print_json(done)
    else:
        print_result(*tested(done))
    if not done.is_success:
        raise typer.Exit(1)


def delete_service(
    name: Name,
    *,
    leave_waiting: Annotated[
        bool,
        typer.Option(
            "--leave-waiting",
            help="Keep what waits for it, held until somebody moves, fails or deletes it.",
        ),
    ] = False,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Delete a service and all rules to it; nothing is sent there any more.

    While deliveries wait for it that is refused, unless they are to be left waiting.

    \b
    Example:
      redrive service delete crm --why "it was switched off"
    """  # noqa: D301 - as above
    delete_document(
        "service",
        name,
        lambda operations: operations.delete_service(
            name, by=by or current_user(), why=why, leave_waiting=leave_waiting
        ),
        store=store,
        json=json,
    )
