"""The commands about a file of services, rules and the like: to compare, carry out and write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Json, Store, Why
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import current_user, in_session, operated_at, settings_of
from redrive.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from redrive.operations import GatewayPlan

__all__ = ["apply", "export_config", "plan"]

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file that says what there is to be.")
]
KeepOthers = Annotated[
    bool,
    typer.Option("--keep-others", help="Leave alone what the file does not name."),
]
_FILE = Path("redrive.toml")


def plan(
    file: File = _FILE, *, keep_others: KeepOthers = False, store: Store = None, json: Json = False
) -> None:
    """Show what a file of services, rules, sources and schedules would change in the store.

    The exit code is 0 if nothing would, and 1 if something would.

    \b
    Example:
      redrive plan redrive.toml
    """  # noqa: D301 - the help keeps what stands below \b as it is
    from redrive.app.gateway.file import read_gateway

    wanted = read_gateway(file)
    with _naming(file):
        found = in_session(
            lambda app: app.operations.plan_gateway(wanted, keep_others=keep_others), store=store
        )
    _show(found, json=json, done=False)
    if found.steps:
        raise typer.Exit(1)


def apply(
    file: File = _FILE,
    *,
    keep_others: KeepOthers = False,
    leave_waiting: Annotated[
        bool,
        typer.Option(
            "--leave-waiting",
            help="Keep what waits for a service that goes, held until somebody moves, fails or "
            "deletes it.",
        ),
    ] = False,
    why: Why = "",
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Have services, rules, sources and schedules be those of a file: all of it, or nothing.

    Workers follow within seconds. A service that goes while deliveries wait for it is refused,
    unless they are to be left waiting.

    \b
    Example:
      redrive apply redrive.toml --why "orders go to the new CRM"
    """  # noqa: D301 - as above
    from redrive.app.gateway.file import read_gateway

    wanted = read_gateway(file)
    opened = operated_at(store)
    with _naming(file):
        done = in_session(
            lambda app: app.operations.apply_gateway(
                wanted,
                by=by or current_user(),
                why=why,
                keep_others=keep_others,
                leave_waiting=leave_waiting,
            ),
            store=store,
            app=opened,
            creates=settings_of(opened) is not None,
        )
    _show(done, json=json, done=True)


def export_config(*, store: Store = None, json: Json = False) -> None:
    """Write the services, rules, sources and schedules of the store as a file has them.

    Secrets are not in it: services say where theirs are.

    \b
    Example:
      redrive export-config > redrive.toml
    """  # noqa: D301 - as above
    from redrive.app.gateway.file import write_gateway

    found = in_session(lambda app: app.operations.export_gateway(), store=store)
    if json:
        print_json(found)
    else:
        typer.echo(write_gateway(found), nl=False)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Have an error say in which file the mistake is."""
    try:
        yield
    except (ConfigurationError, NotFoundError) as error:
        raise error.about(file.name) from error


def _show(found: GatewayPlan, *, json: bool, done: bool) -> None:
    if json:
        print_json(found)
        return
    from redrive.cli.show.gateway import plan_of

    print_result(*plan_of(found, done=done))
