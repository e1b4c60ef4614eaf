"""The commands about destinations: what holds them, pauses, limits for a while, breakers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import By, Json, Reason, Store, Why
from redrive.cli.printing import print_change, print_json, print_result
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.model.gate import BreakerChange, GateFigures
    from redrive.store import Figures, LaneFigures

__all__ = [
    "Name",
    "list_breakers",
    "list_destinations",
    "list_lanes",
    "open_breaker",
    "pause",
    "reset_breaker",
    "resume",
    "set_limits",
    "survey",
    "unset_limits",
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The destination's name.")]


async def survey(app: Operated) -> tuple[Figures, Sequence[GateFigures]]:
    """Return the figures, and the gates of the destinations in them."""
    return await app.operations.status(), await app.operations.gates()


def list_destinations(*, store: Store = None, json: Json = False) -> None:
    """List destinations: their limits, and what holds them now."""
    figures, gates = in_session(survey, store=store)
    if json:
        from redrive.policies.attention import orphans

        known = {one.name: one for one in figures.destinations}
        projections = [name for name, one in known.items() if one.is_projection]
        patterns = {name: one.patterns for name, one in known.items() if not one.is_projection}
        orphaned = [one.name for one in orphans(figures)]
        print_json(
            {
                "destinations": [
                    {
                        "name": one.destination,
                        "patterns": patterns.get(one.destination, ()),
                        "is_projection": one.destination in projections,
                        "limits": one.limits,
                        "override": one.override,
                        "declared": one.declared,
                        "gate": one.gate,
                        "hold": one.hold,
                        "until": one.until,
                        "orphaned": one.destination in orphaned,
                    }
                    for one in gates
                ]
            }
        )
    else:
        from redrive.cli.show.destinations import destinations

        print_result(*destinations(figures, gates))


def pause(
    name: Name, *, why: Reason, by: By = None, store: Store = None, json: Json = False
) -> None:
    """Stop a destination; its deliveries wait, and no attempt is spent."""
    _check_reason(why, "pause a destination")
    is_new = in_session(
        lambda app: app.operations.pause(name, by=by or current_user(), why=why), store=store
    )
    done, otherwise = f"Paused {name}.", f"{name} was paused already."
    print_change(name, done, otherwise, is_new=is_new, json=json)


def resume(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Let a paused destination go on."""
    is_new = in_session(
        lambda app: app.operations.resume(name, by=by or current_user(), why=why), store=store
    )
    done = f"Resumed {name}; what has waited goes out at the pace of retries."
    print_change(name, done, f"{name} was not paused.", is_new=is_new, json=json)


def set_limits(
    name: Name,
    *,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="First attempts, such as 10/s or 30/m.")
    ] = None,
    retry_rate: Annotated[
        str | None, typer.Option("--retry-rate", metavar="RATE", help="Retries.")
    ] = None,
    replay_rate: Annotated[
        str | None, typer.Option("--replay-rate", metavar="RATE", help="Replays.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Attempts at once, over all workers.")
    ] = None,
    span: Annotated[str, typer.Option("--for", metavar="TIME", help="For how long, such as 2h.")],
    why: Reason,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Set limits for a while, above whatever the code declares."""
    override = in_session(
        lambda app: app.operations.override(
            name,
            rate=rate,
            retry_rate=retry_rate,
            replay_rate=replay_rate,
            concurrency=concurrency,
            lasts=span,
            by=by or current_user(),
            why=why,
        ),
        store=store,
    )
    if json:
        print_json({"destination": name, "override": override})
    else:
        from redrive.cli.show.words import instant

        end = f"until {instant(override.until, override.at)}, then as declared"
        print_result(f"{name} keeps to {override.said} {end}.")


def unset_limits(
    name: Name, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Go back to the limits that the code declares."""
    is_new = in_session(
        lambda app: app.operations.end_override(name, by=by or current_user(), why=why),
        store=store,
    )
    done = f"{name} keeps to its declared limits again."
    print_change(name, done, f"No limits were set for {name}.", is_new=is_new, json=json)


def list_lanes(
    *,
    destination: Annotated[str | None, typer.Option(help="Those of this one alone.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the keys of ordered destinations that wait behind a dead letter."""

    async def look(app: Operated) -> tuple[Figures, Sequence[LaneFigures]]:
        return await app.operations.status(), await app.operations.lanes(
            destination=destination, limit=limit
        )

    figures, found = in_session(look, store=store)
    if json:
        print_json({"lanes": found})
    else:
        from redrive.cli.show.destinations import lanes

        print_result(*lanes(found, now=figures.now))


def list_breakers(*, store: Store = None, json: Json = False) -> None:
    """List breakers: their states, and what happens next."""
    figures, gates = in_session(survey, store=store)
    if json:
        print_json(
            {
                "breakers": [
                    {
                        "destination": one.destination,
                        "state": one.gate.breaker,
                        "breaker": one.limits.breaker,
                        "last_failure": one.gate.last_failure,
                    }
                    for one in gates
                ]
            }
        )
    else:
        from redrive.cli.show.destinations import breakers

        print_result(*breakers(gates, now=figures.now))


def open_breaker(
    name: Name,
    *,
    why: Reason,
    span: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="For 5m, say; until it is reset if left out."),
    ] = None,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Open a breaker by hand: nothing is sent, and no attempt spent."""
    from redrive.cli.reading import maybe_moment

    _check_reason(why, "open a breaker")
    until = maybe_moment(span, name="for")
    change = in_session(
        lambda app: app.operations.open_breaker(
            name, by=by or current_user(), why=why, until=until
        ),
        store=store,
    )
    _tell_change(change, json=json)


def reset_breaker(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The destination's name.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="All breakers that are open or half-open.")
    ] = False,
    why: Reason,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Close a breaker by hand, or all, and forget what was counted."""
    from redrive.errors import UsageError

    _check_reason(why, "reset a breaker")
    if every is (name is not None):
        raise UsageError("Name the destination whose breaker to reset, or say --all.")
    if name is None:
        changes = in_session(
            lambda app: app.operations.reset_breakers(by=by or current_user(), why=why),
            store=store,
        )
        _tell_changes(changes, json=json)
        return
    change = in_session(
        lambda app: app.operations.reset_breaker(name, by=by or current_user(), why=why),
        store=store,
    )
    _tell_change(change, json=json)


def _check_reason(why: str, act: str) -> None:
    from redrive.errors import UsageError

    if not why:
        raise UsageError(f"A reason is needed to {act}; say why.")


def _tell_change(change: BreakerChange, *, json: bool) -> None:
    if json:
        print_json(change)
    else:
        from redrive.cli.show.destinations import changed
        from redrive.clock import SystemClock

        print_result(changed(change, now=SystemClock().now()))


def _tell_changes(changes: Sequence[BreakerChange], *, json: bool) -> None:
    if json:
        print_json({"changes": changes})
    elif not changes:
        print_result("All breakers are closed, so nothing was changed.")
    else:
        from redrive.cli.show.destinations import changed
        from redrive.clock import SystemClock

        now = SystemClock().now()
        print_result(*(changed(one, now=now) for one in changes))
