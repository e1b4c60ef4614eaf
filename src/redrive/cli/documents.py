"""What commands do alike to services, rules, sources and schedules: the documents of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, Unpack

import typer

from redrive.cli.printing import print_change, print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redrive.model.rule import DocumentKind, Stored
    from redrive.operations import Operations

    Put = Callable[[Operations, str, Mapping[str, object], str, str], Awaitable[Stored]]
    """What puts a document in force: its name, what is said of it, who does it, and why."""

__all__ = ["Documents", "Keys", "Versions", "delete_document", "show_document", "show_versions"]

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


class Act(TypedDict):
    """The options of commands that change a document."""

    why: str
    by: str | None
    store: str | None
    json: bool


class Documents(NamedTuple):
    """The commands about documents of one kind, by the operations that save and alter them."""

    save: Put
    alter: Put

    def add(self, name: str, keys: Keys, **act: Unpack[Act]) -> None:
        """Add a document, and say which version is in force."""
        _put_in_force(self.save, name, lambda: _read(keys), act)

    def change(self, name: str, keys: Keys, **act: Unpack[Act]) -> None:
        """Change keys of a document, and say which version is in force."""
        _put_in_force(self.alter, name, lambda: _read(keys), act)

    def switch(self, name: str, *, enabled: bool, **act: Unpack[Act]) -> None:
        """Enable or disable a document, and say which version is in force."""
        _put_in_force(self.alter, name, lambda: {"enabled": enabled}, act)


def delete_document(
    kind: DocumentKind,
    name: str,
    delete: Callable[[Operations], Awaitable[bool]],
    *,
    store: str | None,
    json: bool,
) -> None:
    """Delete a document, and say whether there was one."""
    from redrive.cli.show.words import safe

    is_new = in_session(lambda app: delete(app.operations), store=store)
    done, otherwise = f"Deleted the {kind} {safe(name)}.", f"There is no {kind} {safe(name)}."
    print_change(name, done, otherwise, is_new=is_new, json=json)


def show_document(found: Stored, *, json: bool) -> None:
    """Show a document as a file has it."""
    if json:
        print_json(found)
    else:
        from redrive.cli.show.gateway import document

        print_result(*document(found))


def show_versions(kind: DocumentKind, name: str, *, store: str | None, json: bool) -> None:
    """Show the versions of a document, and what each changed."""
    found = in_session(lambda app: app.operations.past_versions(kind, name), store=store)
    if json:
        print_json({"versions": found})
    else:
        from redrive.cli.show.gateway import versions

        print_result(*versions(found))


def _put_in_force(put: Put, name: str, read: Callable[[], Mapping[str, object]], act: Act) -> None:
    from redrive.cli.show.words import safe

    saved = in_session(
        lambda app: put(app.operations, name, read(), act["by"] or current_user(), act["why"]),
        store=act["store"],
    )
    if act["json"]:
        print_json(saved)
    else:
        print_result(f"Version {saved.version} of the {saved.kind} {safe(saved.name)} is in force.")


def _read(keys: Keys) -> dict[str, Any]:
    from redrive.app.gateway.keys import read_keys

    return read_keys(keys)
