"""The options that commands share, as annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, Concatenate, NamedTuple, get_type_hints

import typer

__all__ = [
    "AllMatching",
    "By",
    "Cursor",
    "Filters",
    "Generation",
    "Id",
    "Ids",
    "Json",
    "Letters",
    "Limit",
    "OutOfOrder",
    "Reason",
    "RenderAgain",
    "Reveal",
    "Store",
    "StoreUrl",
    "Target",
    "Why",
    "Yes",
    "with_filters",
    "with_open_filters",
]

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        "--app",
        "--server",
        metavar="URL|MODULE:APP",
        help="The store, such as sqlite:///shop.db, the app that knows it, such as shop:app, or a "
        "server, such as https://redrive.example.com; REDRIVE_STORE, REDRIVE_SERVER or "
        "redrive.toml say it too.",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store, such as sqlite:///shop.db; else that of the app.",
    ),
]
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app whose store it is, such as shop:app.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Id = Annotated[
    str, typer.Argument(metavar="ID", help="The delivery's number, or the id of its event.")
]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID", help="The deliveries' numbers, or ids of their events.")
]
By = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who acts, for the audit log; you by default.")
]
Why = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the audit log.")]
Reveal = Annotated[
    bool,
    typer.Option(
        "--reveal", help="Show what is redacted too; the audit log tells who has seen it."
    ),
]
Reason = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, which is needed.")]
Generation = Annotated[
    str | None, typer.Option(metavar="NAME", help="The generation that delivers it; as it was.")
]
RenderAgain = Annotated[
    bool,
    typer.Option(
        "--render-again", help="Render them by their rules as they are now, not as they were then."
    ),
]
Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="The dead letters' numbers, or ids of their events."),
]
AllMatching = Annotated[
    bool, typer.Option("--all-matching", help="All that the filters find, or simply all.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to show.")]
Cursor = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Where the page before said to go on.")
]


class Filters(NamedTuple):
    """Which deliveries are meant, as it was typed."""

    destination: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this destination.")
    ] = None
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="GLOB", help="Of types such as order.*.")
    ] = None
    event_id: Annotated[
        str | None, typer.Option("--event", metavar="ID", help="Of this event.")
    ] = None
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Of this key.")] = None
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant.")] = None
    reason: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Failed as exhausted, terminal, expired, …"),
    ] = None
    error: Annotated[
        str | None, typer.Option(metavar="CLASS", help="Failed with this class of error.")
    ] = None
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this group of dead letters.")
    ] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From 2h ago on, or from 2026-01-31.")
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before that time.")] = None
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this in the error or the payload.")
    ] = None
    resolved: Annotated[bool, typer.Option("--resolved", help="Resolved ones as well.")] = False


OutOfOrder = Annotated[
    bool,
    typer.Option(
        "--out-of-order",
        help="Also those of a projection, which may have applied later events of their keys.",
    ),
]


def with_filters(command: Callable[Concatenate[Filters, ...], None]) -> Callable[..., None]:
    """Give a command the options of `Filters`; it gets what was typed as its first argument."""
    return _filtered(command, Filters._fields)


def with_open_filters(command: Callable[Concatenate[Filters, ...], None]) -> Callable[..., None]:
    """Give a command the options of `Filters` for an act that means nothing to resolved letters."""
    return _filtered(command, [name for name in Filters._fields if name != "resolved"])


def _filtered(
    command: Callable[Concatenate[Filters, ...], None], names: Sequence[str]
) -> Callable[..., None]:
    @wraps(command)
    def filtered(**given: Any) -> None:  # noqa: ANN401 - options of any type
        filters = Filters(**{name: given.pop(name) for name in names})
        command(filters, **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=Filters._field_defaults[name],
            annotation=annotation,
        )
        for name, annotation in get_type_hints(Filters, include_extras=True).items()
        if name in names
    ]
    parameters = [*own, *more]
    filtered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    filtered.__annotations__ = {one.name: one.annotation for one in parameters}
    return filtered
