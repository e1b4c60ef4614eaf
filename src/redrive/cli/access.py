"""The commands about who may: access tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import By, Json, Reason, Store
from redrive.cli.printing import print_change, print_json, print_result, print_warning
from redrive.cli.session import current_user, in_session

__all__ = ["create_token", "list_tokens", "revoke_token"]

RoleName = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="publish, view, operate or admin.")
]
Tenant = Annotated[
    str | None, typer.Option(metavar="NAME", help="For this tenant alone; for all if left out.")
]
Destinations = Annotated[
    list[str] | None,
    typer.Option("--destination", metavar="NAME", help="At this destination alone; repeatable."),
]


def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will use it, such as shop.")],
    *,
    role: RoleName,
    why: Reason,
    tenant: Tenant = None,
    destination: Destinations = None,
    expires_in: Annotated[
        str | None, typer.Option(metavar="TIME", help="Such as 90d; never if left out.")
    ] = None,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Make an access token, and print its secret, this once.

    Only the secret goes to standard output, so that it can be piped to where it is kept.

    \b
    Example:
      redrive token create shop --role publish --expires-in 90d --why "the web shop"
    """  # noqa: D301 - the help keeps what stands below \b as it is
    made = in_session(
        lambda app: app.operations.create_token(
            name,
            role=role,
            tenant=tenant,
            destinations=tuple(destination or ()),
            expires_in=expires_in,
            by=by or current_user(),
            why=why,
        ),
        store=store,
    )
    if json:
        print_json(made)
        return
    token = made.token
    ends = "" if token.expires_at is None else f", until {token.expires_at:%Y-%m-%d %H:%M} UTC"
    print_warning(f"{token.name} ({token.id}) may {token.grant}{ends}. Keep the secret well:")
    print_result(made.secret)


def list_tokens(*, store: Store = None, json: Json = False) -> None:
    """List access tokens: what they allow, when they end, and when they were used.

    \b
    Example:
      redrive token list
    """  # noqa: D301 - as above
    found = in_session(lambda app: app.operations.tokens(), store=store)
    if json:
        print_json({"tokens": found})
    else:
        from redrive.cli.show.access import tokens
        from redrive.clock import SystemClock

        print_result(*tokens(found, now=SystemClock().now()))


def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="The token's id, as `redrive token list` has it.")
    ],
    *,
    why: Reason,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """End an access token for good.

    \b
    Example:
      redrive token revoke aeb7q4zkd2xc --why "it was in a log"
    """  # noqa: D301 - as above
    is_new = in_session(
        lambda app: app.operations.revoke_token(token_id, by=by or current_user(), why=why),
        store=store,
    )
    done, otherwise = f"Revoked {token_id}.", f"{token_id} was revoked already."
    print_change(token_id, done, otherwise, is_new=is_new, json=json)
