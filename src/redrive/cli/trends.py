"""The command that shows what became of deliveries over time."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import Json, Store
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import in_session

__all__ = ["show_trends"]


def show_trends(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Destinations; all together if left out."),
    ] = None,
    *,
    over: Annotated[str, typer.Option(metavar="WINDOW", help="The last hour, day or week.")] = (
        "hour"
    ),
    store: Store = None,
    json: Json = False,
) -> None:
    """Show deliveries over time: delivered, retried, failed, how late, and how long tries took."""
    found = in_session(lambda app: app.operations.trends(names or (), over=over), store=store)
    if json:
        print_json({"trends": found})
    else:
        from redrive.cli.show.trends import trends

        print_result(*trends(found))
