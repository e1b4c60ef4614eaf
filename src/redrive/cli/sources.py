"""The commands about sources, who send us webhooks: list, show, add, set and delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.documents import Documents, Keys, delete_document, show_document
from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

__all__ = [
    "add_source",
    "delete_source",
    "disable_source",
    "enable_source",
    "list_sources",
    "set_source",
    "show_source",
]

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The source's name, which stands in its address.")
]
_SOURCES = Documents(
    save=lambda operations, name, document, by, why: operations.save_source(
        name, document, by=by, why=why, is_new=True
    ),
    alter=lambda operations, name, changes, by, why: operations.alter_source(
        name, changes, by=by, why=why
    ),
)


def list_sources(*, store: Store = None, json: Json = False) -> None:
    """List those whose webhooks are let in.

    \b
    Example:
      redrive source list
    """  # noqa: D301 - the help keeps what stands below \b as it is
    found = in_session(lambda app: app.operations.sources(), store=store)
    if json:
        print_json({"sources": found})
    else:
        from redrive.cli.show.gateway import sources

        print_result(*sources(found))


def show_source(name: Name, *, store: Store = None, json: Json = False) -> None:
    """Show one source, as a file has it, and its version.

    \b
    Example:
      redrive source show github
    """  # noqa: D301 - as above
    [found] = in_session(lambda app: app.operations.sources(name=name), store=store)
    show_document(found, json=json)


def add_source(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Let somebody's webhooks in, at /in/NAME of the server; its keys are those of a file.

    \b
    Example:
      redrive source add github kind=github secrets=env:GITHUB_SECRET
    """  # noqa: D301 - as above
    _SOURCES.add(name, keys, why=why, by=by, store=store, json=json)


def set_source(
    name: Name, keys: Keys, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Change keys of a source; KEY= without a value takes one out.

    Servers follow within seconds.

    \b
    Example:
      redrive source set github unique_for=1d
    """  # noqa: D301 - as above
    _SOURCES.change(name, keys, why=why, by=by, store=store, json=json)


def enable_source(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Let a source in again.

    \b
    Example:
      redrive source enable github
    """  # noqa: D301 - as above
    _SOURCES.switch(name, enabled=True, why=why, by=by, store=store, json=json)


def disable_source(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Let nothing of a source in; to who sends, it is not there.

    \b
    Example:
      redrive source disable github --why "their secret has leaked"
    """  # noqa: D301 - as above
    _SOURCES.switch(name, enabled=False, why=why, by=by, store=store, json=json)


def delete_source(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Delete a source; what it has sent stays.

    \b
    Example:
      redrive source delete github
    """  # noqa: D301 - as above
    delete_document(
        "source",
        name,
        lambda operations: operations.delete_source(name, by=by or current_user(), why=why),
        store=store,
        json=json,
    )
