"""The commands about the journal of this machine, or with --server of that of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from redrive.cli.options import By, Json, Limit, Store, Target, Why
from redrive.cli.printing import print_json, print_result, print_warning
from redrive.cli.session import (
    chosen_store,
    current_user,
    in_session,
    operated_at,
    settings_of,
)

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.store import Finding

__all__ = ["drain", "examine_journal", "list_files", "show", "verify"]

T = TypeVar("T")
File = Annotated[str, typer.Argument(metavar="FILE", help="The name of a file of the journal.")]


def list_files(target: Target = None, *, store: Store = None, json: Json = False) -> None:
    """List the files of the journal, and how many of their records wait for the store."""
    found = _look(lambda app: app.operations.journal(), chosen_store(target, store))
    if json:
        print_json(found)
    else:
        from redrive.cli.show.journal import files
        from redrive.clock import SystemClock

        print_result(*files(found, now=SystemClock().now()))


def show(
    file: File,
    *,
    after: Annotated[
        int, typer.Option(min=0, metavar="N", help="Where the page before said to go on.")
    ] = 0,
    limit: Limit = 20,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Only lines that cannot be read.")
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show the records of a file, without what they carry."""
    page = _look(
        lambda app: app.operations.journal_records(file, after=after, limit=limit, damaged=damaged),
        store,
    )
    if json:
        print_json(page)
    else:
        from redrive.cli.show.journal import records

        print_result(*records(page))


def drain(
    target: Target = None,
    *,
    any_store: Annotated[
        bool,
        typer.Option("--any-store", help="Also what is for another store, if this one has moved."),
    ] = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Give the journal to the store, each record once, as processes that track do by themselves.

    \b
    Example:
      redrive journal drain shop:app --why "the shop is not running any more"
    """  # noqa: D301 - the help keeps what stands below \b as it is
    done = in_session(
        lambda app: app.operations.drain_journal(
            by=by or current_user(), why=why, any_store=any_store
        ),
        store=chosen_store(target, store),
    )
    if json:
        print_json(done)
    else:
        from redrive.cli.show.journal import drained

        print_result(drained(done))
        for one in done.left:
            print_warning(one.why)
    if done.left or done.damaged or done.foreign:
        raise typer.Exit(1)


def verify(target: Target = None, *, store: Store = None, json: Json = False) -> None:
    """Read every line of the journal; the exit code is 1 if one of them cannot be read."""
    found = _look(lambda app: app.operations.journal(verify=True), chosen_store(target, store))
    if json:
        print_json(found)
    else:
        from redrive.cli.show.journal import verdict

        print_result(*verdict(found))
    if any(one.problem for one in found.files):
        raise typer.Exit(1)


def examine_journal(store: str | None) -> Sequence[Finding]:
    """Say what of this machine's journal needs somebody, while its store does not answer."""
    from redrive.clock import SystemClock
    from redrive.operations.explain.journal import journal_findings

    if settings_of(operated_at(store)) is None:
        return ()
    found = _look(lambda app: app.operations.journal(), store)
    return [*journal_findings(found.files, host=found.host, now=SystemClock().now())]


def _look(work: Callable[[Operated], Awaitable[T]], store: str | None) -> T:
    """Look at files, which asks no store: it may well be down."""
    import asyncio

    app = operated_at(store)
    if settings_of(app) is None:
        return in_session(work, store=store, app=app)

    async def look() -> T:
        return await work(app)

    return asyncio.run(look())
