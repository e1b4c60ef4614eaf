"""The command that erases what events said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.asking import confirm
from redrive.cli.options import By, Json, Store, Yes
from redrive.cli.printing import print_json, print_result, print_warning, progress
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.operations import Erasure, ErasurePlan

__all__ = ["erase"]

Reason = Annotated[
    str,
    typer.Option("--why", metavar="TEXT", help="The reason, which is needed, and is kept."),
]


def erase(
    *,
    event: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="What one event said; again for more.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="What all events of a key said.")] = None,
    tenant: Annotated[str | None, typer.Option(help="What all events of a tenant said.")] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PART",
            help="Erase key, tenant, headers or idempotency-key as well; again for more.",
        ),
    ] = None,
    waiting: Annotated[
        str,
        typer.Option(
            metavar="deliver|fail",
            help="What still waits: leave it until it is delivered, or fail it now.",
        ),
    ] = "deliver",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    by: By = None,
    why: Reason = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Erase what events said, for good and everywhere; their story stays."""
    chosen: dict[str, Any] = {"event_ids": tuple(event or ()), "key": key, "tenant": tenant}
    terms = _terms(parts or [], waiting)
    if not dry_run:
        _refuse_without_reason(why)

    async def look(app: Operated) -> ErasurePlan:
        with progress("Looking through the log", None) as advance:
            return await app.operations.plan_erase(**chosen, parts=terms["parts"], progress=advance)

    plan = in_session(look, store=store)
    if dry_run:
        if json:
            print_json({"would_erase": plan})
        else:
            _tell_plan(plan)
        return
    if not yes:
        if not json:
            _tell_plan(plan)
        confirm(f"Erase what {_events(plan.events)} said, for good?")

    async def work(app: Operated) -> Erasure:
        with progress("Erasing", plan.looked_at) as advance:
            return await app.operations.erase(
                **chosen, **terms, by=by or current_user(), why=why, progress=advance
            )

    done = in_session(work, store=store)
    if json:
        print_json({"erased": done})
    else:
        _tell(done)
    if not done.is_whole:
        raise typer.Exit(1)


def _terms(parts: list[str], waiting: str) -> dict[str, Any]:
    from redrive.cli.reading import read_choice
    from redrive.model.erasure import ErasurePart, ErasureWaiting

    return {
        "parts": tuple(read_choice(ErasurePart, one, name="with") for one in parts),
        "waiting": read_choice(ErasureWaiting, waiting, name="waiting"),
    }


def _refuse_without_reason(why: str) -> None:
    from redrive.errors import UsageError

    if not why.strip():
        raise UsageError("A reason is needed to erase what events said; say --why.")


def _tell_plan(plan: ErasurePlan) -> None:
    print_result(
        f"{_events(plan.events)} would be erased, with {_deliveries(plan.deliveries)}; "
        f"{_letters(plan.dead_letters)} among them."
    )
    for count, what in (
        (plan.erased, "erased already"),
        (plan.waiting, "still to be delivered"),
        (plan.running, "being delivered just now"),
        (plan.unread, "still to be read by a projection"),
    ):
        if count:
            print_result(f"{count:,} {_are(count)} {what}.")
    _tell_beside(plan, "stand")


def _tell(done: Erasure) -> None:
    failed = f", {done.failed:,} of which were failed for it" if done.failed else ""
    print_result(f"Erased {_events(done.events)}, with {_deliveries(done.deliveries)}{failed}.")
    _tell_beside(done, "stood")
    if done.left:
        named = ", ".join(done.named[:3])
        print_warning(
            f"{_events(done.left)} {_are(done.left)} left, because somebody has still to get them "
            f"({named}): say it again when they have settled, or say --waiting fail."
        )


def _tell_beside(found: ErasurePlan | Erasure, stand: str) -> None:
    if found.archived:
        print_result(f"{_letters(found.archived)} {stand} in the archive of this machine.")
    if found.journaled:
        print_result(
            f"{found.journaled:,} {stand} in drained files of the journal of this machine."
        )
    if found.to_drain:
        print_warning(
            f"{found.to_drain:,} {_are(found.to_drain)} still in the journal of this machine: say "
            "`redrive journal drain` first."
        )
    for name in found.unreadable:
        print_warning(f"{name} of the journal cannot be read whole; look at it, and remove it.")
    if found.read_models:
        names = ", ".join(found.read_models)
        print_result(f"The tables of projections are yours to clean: {names}.")


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"


def _deliveries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
