"""The commands about services and rules: list, show, add, set, enable, disable and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.cli.session import Operated
    from redrive.model.rule import Stored
    from redrive.operations import Operations, RulePreview

__all__ = [
    "Keys",
    "Versions",
    "add_rule",
    "add_service",
    "delete_document",
    "delete_rule",
    "delete_service",
    "disable_rule",
    "disable_service",
    "enable_rule",
    "enable_service",
    "list_rules",
    "list_services",
    "log",
    "save_document",
    "set_rule",
    "set_service",
    "show_document",
    "show_rule",
    "show_service",
    "show_versions",
    "try_service",
]

ServiceName = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]
RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")]
Versions = Annotated[
    bool, typer.Option("--versions", help="Its versions: when, by whom, and what was different.")
]
Keys = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=VALUE",
        help='A key and its value as TOML has it, such as rate="10/s"; text needs no quotes.',
    ),
]


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
    name: ServiceName, *, versions: Versions = False, store: Store = None, json: Json = False
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
    name: ServiceName,
    keys: Keys,
    *,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add a service; its keys are those of a file.

    \b
    Example:
      redrive service add crm url=https://api.example.com/hooks auth.bearer=env:CRM_TOKEN
    """  # noqa: D301 - as above
    from redrive.app.gateway.keys import read_keys

    save_document(
        lambda operations: operations.save_service(
            name, read_keys(keys), by=by or current_user(), why=why, is_new=True
        ),
        store=store,
        json=json,
    )


def set_service(
    name: ServiceName,
    keys: Keys,
    *,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Change keys of a service; KEY= without a value takes one out.

    Workers follow within seconds.

    \b
    Example:
      redrive service set crm rate=10/s timeout=5s
    """  # noqa: D301 - as above
    from redrive.app.gateway.keys import read_keys

    save_document(
        lambda operations: operations.alter_service(
            name, read_keys(keys), by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def enable_service(
    name: ServiceName, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Serve a service again; what waits for it is sent.

    \b
    Example:
      redrive service enable crm
    """  # noqa: D301 - as above
    save_document(
        lambda operations: operations.alter_service(
            name, {"enabled": True}, by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def disable_service(
    name: ServiceName, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Send a service nothing; what it gets waits, and nothing is lost.

    \b
    Example:
      redrive service disable crm --why "they move to another data centre"
    """  # noqa: D301 - as above
    save_document(
        lambda operations: operations.alter_service(
            name, {"enabled": False}, by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def log(
    name: ServiceName,
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
    name: ServiceName,
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
    name: ServiceName,
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
        name,
        lambda operations: operations.delete_service(
            name, by=by or current_user(), why=why, leave_waiting=leave_waiting
        ),
        what="service",
        store=store,
        json=json,
    )


def list_rules(
    *,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Those to this service alone.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the rules by which services get events.

    \b
    Example:
      redrive rule list --service crm
    """  # noqa: D301 - as above
    found = in_session(lambda app: app.operations.rules(service=service), store=store)
    if json:
        print_json({"rules": found})
    else:
        from redrive.cli.show.gateway import rules

        print_result(*rules(found))


def show_rule(
    name: RuleName, *, versions: Versions = False, store: Store = None, json: Json = False
) -> None:
    """Show one rule, as a file has it, and its version.

    \b
    Example:
      redrive rule show orders
    """  # noqa: D301 - as above
    if versions:
        show_versions("rule", name, store=store, json=json)
        return

    async def look(app: Operated) -> tuple[Stored, RulePreview]:
        [found] = await app.operations.rules(name=name)
        return found, await app.operations.preview_rule(name, limit=1)

    found, preview = in_session(look, store=store)
    show_document(found, json=json)
    if not json and preview.undecided:
        from redrive.cli.show.gateway import undecided

        print_result(undecided(found, preview))


def add_rule(
    name: RuleName,
    keys: Keys,
    *,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add a rule; its keys are those of a file.

    \b
    Example:
      redrive rule add orders service=crm event=order.* path=/orders
    """  # noqa: D301 - as above
    from redrive.app.gateway.keys import read_keys

    save_document(
        lambda operations: operations.save_rule(
            name, read_keys(keys), by=by or current_user(), why=why, is_new=True
        ),
        store=store,
        json=json,
    )


def set_rule(
    name: RuleName,
    keys: Keys,
    *,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Change keys of a rule; KEY= without a value takes one out.

    What was published before goes by the version that was in force then.

    \b
    Example:
      redrive rule set orders path=/v2/orders
    """  # noqa: D301 - as above
    from redrive.app.gateway.keys import read_keys

    save_document(
        lambda operations: operations.alter_rule(
            name, read_keys(keys), by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def enable_rule(
    name: RuleName, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a rule give events again, from now on.

    \b
    Example:
      redrive rule enable orders
    """  # noqa: D301 - as above
    save_document(
        lambda operations: operations.alter_rule(
            name, {"enabled": True}, by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def disable_rule(
    name: RuleName, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a rule give no events; what it has given goes on.

    \b
    Example:
      redrive rule disable orders
    """  # noqa: D301 - as above
    save_document(
        lambda operations: operations.alter_rule(
            name, {"enabled": False}, by=by or current_user(), why=why
        ),
        store=store,
        json=json,
    )


def delete_rule(
    name: RuleName, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Delete a rule; what it has given goes on, by the version that gave it.

    \b
    Example:
      redrive rule delete orders
    """  # noqa: D301 - as above
    delete_document(
        name,
        lambda operations: operations.delete_rule(name, by=by or current_user(), why=why),
        what="rule",
        store=store,
        json=json,
    )


def save_document(
    save: Callable[[Operations], Awaitable[Stored]], *, store: str | None, json: bool
) -> None:
    """Save a document, and say which version is in force."""
    from redrive.cli.show.words import safe

    saved = in_session(lambda app: save(app.operations), store=store)
    if json:
        print_json(saved)
    else:
        print_result(f"Version {saved.version} of the {saved.kind} {safe(saved.name)} is in force.")


def delete_document(
    name: str,
    delete: Callable[[Operations], Awaitable[bool]],
    *,
    what: str,
    store: str | None,
    json: bool,
) -> None:
    """Delete a document, and say whether there was one."""
    from redrive.cli.show.words import safe

    is_new = in_session(lambda app: delete(app.operations), store=store)
    if json:
        changed, unchanged = ([name], []) if is_new else ([], [name])
        print_json({"changed": changed, "unchanged": unchanged})
    else:
        said = f"Deleted the {what} {{}}." if is_new else f"There is no {what} {{}}."
        print_result(said.format(safe(name)))
    if not is_new:
        raise typer.Exit(1)


def show_document(found: Stored, *, json: bool) -> None:
    """Show a document as a file has it."""
    if json:
        print_json(found)
    else:
        from redrive.cli.show.gateway import document

        print_result(*document(found))


def show_versions(kind: str, name: str, *, store: str | None, json: bool) -> None:
    """Show the versions of a document, and what each changed."""
    found = in_session(lambda app: app.operations.past_versions(kind, name), store=store)
    if json:
        print_json({"versions": found})
    else:
        from redrive.cli.show.gateway import versions

        print_result(*versions(found))
