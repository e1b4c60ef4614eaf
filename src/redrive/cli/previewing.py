"""The command that tries a rule with events, before any is sent by it."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import Json, Store
from redrive.cli.printing import print_json, print_result
from redrive.cli.session import in_session

__all__ = ["preview_rule"]


def preview_rule(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Keys as they would be changed; the rule stays as it is.",
            show_default=False,
        ),
    ] = None,
    *,
    event: Annotated[
        str | None, typer.Option(metavar="ID", help="With this past event, whether it fits or not.")
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="With this payload; - reads standard input, @path a file."
        ),
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The type of the sample.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of the sample.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the sample.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=50, metavar="N", help="Of the last that fit, no more.")
    ] = 10,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what a rule makes of the last events that fit, of one event, or of a sample.

    Nothing is sent, and nothing is changed. What is hidden where an event is shown is hidden from
    the rule here, too.

    \b
    Examples:
      redrive rule preview orders
      redrive rule preview orders path=/v2/orders --event 01J9ZK3M7Q
      redrive rule preview orders --type order.paid --sample '{"order": 42}'
    """  # noqa: D301 - the help keeps what stands below \b as it is
    from redrive.app.gateway.keys import read_keys
    from redrive.cli.reading import read_payload
    from redrive.errors import UsageError
    from redrive.operations import SampleEvent

    if (sample is None) != (event_type is None):
        raise UsageError(
            "--sample and --type go together: write the payload and the type of an event."
        )
    if sample is None and not (key is None and tenant is None):
        raise UsageError("--key and --tenant are those of a sample; give one with --sample.")
    given = None
    if event_type is not None:
        payload = read_payload(sample)
        given = SampleEvent(type=event_type, payload=payload, key=key, tenant=tenant)
    found = in_session(
        lambda app: app.operations.preview_rule(
            name,
            changes=read_keys(keys) if keys else None,
            event_id=event,
            sample=given,
            limit=limit,
        ),
        store=store,
    )
    if json:
        print_json(found)
    else:
        from redrive.cli.show.gateway import previews

        print_result(*previews(found, name))
