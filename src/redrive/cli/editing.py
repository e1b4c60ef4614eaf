"""The command that changes what a dead letter carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import asking
from redrive.cli.inspect import tell
from redrive.cli.options import By, Id, Json, Reason, Reveal, Store, Yes
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    import msgspec

    from redrive.operations import Story

__all__ = ["edit"]


def edit(
    name: Id,
    *,
    why: Reason,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="The new payload; else your editor opens.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="PATH", help="The new payload, from a file; - is stdin.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Send it again, or only change it.")
    ] = True,
    reveal: Reveal = False,
    yes: Yes = False,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Correct the payload of a dead letter and send it again; its event stays as it was.

    Where the payload has [redacted], what is there stays.
    """
    from redrive.cli.naming import check_names, number_of
    from redrive.cli.reading import read_payload
    from redrive.cli.show.replays import difference
    from redrive.errors import UsageError

    check_names([name])
    if payload is not None and file is not None:
        raise UsageError("The payload is given twice; leave --payload or --file out.")
    given = _source(payload, file)
    delivery_id = number_of(name, needs=("a dead letter",), store=store)
    told = tell(delivery_id, reveal=reveal and given is None, by=by, why=why, store=store)
    new = read_payload(_edited(told) if given is None else given)
    changes = in_session(lambda app: app.operations.preview_edit(delivery_id, new), store=store)
    if not changes:
        raise UsageError(f"Delivery {delivery_id} carries that payload already.")
    if not json:
        print_result(*difference(changes))
    if not yes:
        asking.confirm(f"Change this{' and send it again' if replay else ''}?")
    after = in_session(
        lambda app: app.operations.edit(
            delivery_id, new, by=by or current_user(), why=why, replay=replay
        ),
        store=store,
    )
    if json:
        print_json(after)
    else:
        done = "and sent it again" if replay else "and left it where it is"
        print_result(f"Edited delivery {delivery_id} {done}.")


def _source(payload: str | None, file: str | None) -> str | None:
    if file is None:
        return payload
    return file if file == "-" else f"@{file}"


def _edited(told: Story) -> str:
    """Return what a person made of the payload in their editor."""
    import click

    from redrive.errors import UsageError

    if not asking.is_attended():
        raise UsageError("There is nobody to edit here; give the payload by --payload or --file.")
    before = _readable(told.carried)
    try:
        after = click.edit(before, extension=".json")
    except OSError as error:
        raise UsageError(
            f"The editor left no file behind ({error.strerror}), so nothing is changed here."
        ) from error
    if after is None or after == before:
        raise UsageError("Nothing was changed in the editor, so nothing is changed here.")
    return after


def _readable(payload: msgspec.Raw) -> str:
    from msgspec.json import format as formatted

    try:
        return formatted(bytes(payload), indent=2).decode() + "\n"
    except (ValueError, RecursionError):
        return bytes(payload).decode(errors="replace")
