"""The commands about rules of services: list, show, add, set, enable, disable and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.model.rule import Stored
    from redrive.operations import RulePreview

__all__ = [
    "add_rule",
    "delete_rule",
    "disable_rule",
    "enable_rule",
    "list_rules",
    "set_rule",
    "show_rule",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")]
_RULES = Documents(
    save=lambda operations, name, document, by, why: operations.save_rule(
        name, document, by=by, why=why, is_new=True
    ),
    alter=lambda operations, name, changes, by, why: operations.alter_rule(
        name, changes, by=by, why=why
    ),
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
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found = in_session(lambda app: app.operations.rules(service=service), store=store)
    if json:
        print_json({"rules": found})
    else:
        from redrive.cli.show.gateway import rules

        print_result(*rules(found))


def show_rule(
    name: Name, *, versions: Versions = False, store: Store = None, json: Json = False
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
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Add a rule; its keys are those of a file.

    \b
    Example:
      redrive rule add orders service=crm event=order.* path=/orders
    """  # noqa: D301 - as above
    _RULES.add(name, keys, why=why, by=by, store=store, json=json)


def set_rule(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Change keys of a rule; KEY= without a value takes one out.

    What was published before goes by the version that was in force then.

    \b
    Example:
      redrive rule set orders path=/v2/orders
    """  # noqa: D301 - as above
    _RULES.change(name, keys, why=why, by=by, store=store, json=json)


def enable_rule(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a rule give events again, from now on.

    \b
    Example:
      redrive rule enable orders
    """  # noqa: D301 - as above
    _RULES.switch(name, enabled=True, why=why, by=by, store=store, json=json)


def disable_rule(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Have a rule give no events; what it has given goes on.

    \b
    Example:
      redrive rule disable orders
    """  # noqa: D301 - as above
    _RULES.switch(name, enabled=False, why=why, by=by, store=store, json=json)


def delete_rule(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Delete a rule; what it has given goes on, by the version that gave it.

    \b
    Example:
      redrive rule delete orders
    """  # noqa: D301 - as above
    delete_document(
        "rule",
        name,
        lambda operations: operations.delete_rule(name, by=by or current_user(), why=why),
        store=store,
        json=json,
    )
