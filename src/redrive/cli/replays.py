"""The commands about replays of many: plan, start, follow, and tell one what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.asking import confirm
from redrive.cli.options import (
    AllMatching,
    By,
    Filters,
    Generation,
    Json,
    Letters,
    Limit,
    RenderAgain,
    Store,
    Why,
    Yes,
    with_open_filters,
)
from redrive.cli.printing import print_json, print_result, print_warning
from redrive.cli.session import current_user, in_session

if TYPE_CHECKING:
    from redrive.cli.session import Operated
    from redrive.operations import AutomaticReplay, Operations
    from redrive.store import Query, Replay

__all__ = ["cancel", "list_replays", "pause", "plan", "resume", "show", "start"]

_INTERRUPTED = 130
_LOOKS_PER_SECOND = 5
Number = Annotated[int, typer.Argument(metavar="ID", help="The replay's number.")]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="No more than 50/s, say, or 30/m.")]


@with_open_filters
def plan(
    filters: Filters,
    ids: Letters = None,
    *,
    rate: Rate = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what a replay would take and what stands in its way; changes nothing."""
    chosen = _chosen(ids, filters, store=store)
    planned = in_session(
        lambda app: app.operations.plan_replay(chosen, rate=rate),
        store=store,
        query=_searched(chosen),
    )
    if json:
        print_json(planned)
    else:
        from redrive.cli.show.replays import plan as shown

        print_result(*shown(planned))


@with_open_filters
def start(
    filters: Filters,
    ids: Letters = None,
    *,
    all_matching: AllMatching = False,
    yes: Yes = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once instead of following it.")
    ] = False,
    canary: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many go first; none of them may fail.")
    ] = 1,
    largest_wave: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many go at once at most.")
    ] = 1_000,
    failure_limit: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="The share of a wave that may fail."),
    ] = 0.1,
    rate: Rate = None,
    generation: Generation = None,
    render_again: RenderAgain = False,
    by: By = None,
    why: Why = "",
    store: Store = None,
    json: Json = False,
) -> None:
    """Replay many dead letters, one first, and follow it to its end."""
    from redrive.errors import UsageError

    is_search = all_matching or filters.group is not None
    if bool(ids) == is_search:
        raise UsageError(
            "Name the dead letters to replay by their ids, or replay a group with --group, or "
            "all that match filters with --all-matching."
        )
    chosen = _chosen(ids, filters, store=store)
    if not yes:
        _ask(chosen, store=store)
    replay = in_session(
        lambda app: app.operations.start_replay(
            chosen,
            by=by or current_user(),
            why=why,
            generation=generation,
            rate=rate,
            canary=canary,
            largest_wave=largest_wave,
            failure_limit=failure_limit,
            render_again=render_again,
        ),
        store=store,
        query=_searched(chosen),
    )
    if detach:
        if json:
            print_json(replay)
        else:
            from redrive.cli.show.replays import started

            print_result(*started(replay))
        return
    _follow_to_the_end(replay.id, store=store, json=json)


def list_replays(
    *,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only replays before this one.")
    ] = None,
    limit: Limit = 20,
    store: Store = None,
    json: Json = False,
) -> None:
    """List replays of many, the latest first, and those that begin by themselves."""
    from redrive.cli.reading import check_numbers

    check_numbers([] if before is None else [before])

    async def look(app: Operated) -> tuple[Sequence[Replay], Sequence[AutomaticReplay]]:
        found = await app.operations.replays(before=before, limit=limit)
        return found, await app.operations.auto_replays()

    found, auto_replays = in_session(look, store=store)
    if json:
        print_json({"replays": found, "auto_replays": auto_replays})
    else:
        from redrive.cli.show.replays import replays
        from redrive.clock import SystemClock

        print_result(*replays(found, auto_replays, now=SystemClock().now(), limit=limit))


def show(
    replay_id: Number,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Follow it to its end.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show one replay and how far it has come."""
    from redrive.cli.reading import check_numbers

    check_numbers([replay_id])
    if follow:
        _follow_to_the_end(replay_id, store=store, json=json)
        return
    _print(in_session(lambda app: app.operations.show_replay(replay_id), store=store), json=json)


def pause(
    replay_id: Number, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Let a replay send no more letters for now."""
    _change(
        replay_id,
        lambda operations: operations.pause_replay(replay_id, by=by or current_user(), why=why),
        ("Paused", "is not running"),
        store=store,
        json=json,
    )


def resume(
    replay_id: Number, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """Go on with a replay that is paused, or has stopped itself.

    Letters that have failed again in it stay dead letters: it sends each letter once.
    """
    _change(
        replay_id,
        lambda operations: operations.resume_replay(replay_id, by=by or current_user(), why=why),
        ("Resumed", "is neither paused nor stopped"),
        store=store,
        json=json,
    )


def cancel(
    replay_id: Number, *, why: Why = "", by: By = None, store: Store = None, json: Json = False
) -> None:
    """End a replay; the letters that had no turn yet stay dead letters."""
    _change(
        replay_id,
        lambda operations: operations.cancel_replay(replay_id, by=by or current_user(), why=why),
        ("Cancelled", "is over already"),
        store=store,
        json=json,
    )


def _chosen(
    ids: Sequence[str] | None, filters: Filters, *, store: str | None
) -> Query | Sequence[int]:
    from redrive.cli.naming import number_of
    from redrive.cli.reading import read_query
    from redrive.errors import UsageError

    if not ids:
        return read_query(filters)
    if filters != Filters():
        raise UsageError("Ids say exactly which dead letters are meant; leave the filters out.")
    return [number_of(one, needs=("a dead letter",), store=store) for one in ids]


def _searched(chosen: Query | Sequence[int]) -> Query | None:
    from redrive.store import Query

    return chosen if isinstance(chosen, Query) else None


def _ask(chosen: Query | Sequence[int], *, store: str | None) -> None:
    planned = in_session(
        lambda app: app.operations.plan_replay(chosen),
        store=store,
        query=_searched(chosen),
    )
    count = planned.survey.selected
    if count:
        confirm(f"Replay {count:,} dead letter{'' if count == 1 else 's'}, one first?")


def _change(
    replay_id: int,
    act: Callable[[Operations], Awaitable[bool]],
    words: tuple[str, str],
    *,
    store: str | None,
    json: bool,
) -> None:
    """Tell a replay what to do, and say whether that changed anything."""
    from redrive.cli.reading import check_numbers

    check_numbers([replay_id])

    async def work(app: Operated) -> tuple[bool, Replay]:
        is_new = await act(app.operations)
        return is_new, await app.operations.show_replay(replay_id)

    is_new, replay = in_session(work, store=store)
    done, otherwise = words
    if json:
        print_json({"replay": replay_id, "changed": is_new})
    elif is_new:
        from redrive.cli.show.replays import left_behind

        print_result(f"{done} replay {replay_id}.", *left_behind(replay))
    else:
        print_result(f"Replay {replay_id} {otherwise}, so nothing was changed.")
    if not is_new:
        raise typer.Exit(1)


def _follow_to_the_end(replay_id: int, *, store: str | None, json: bool) -> None:
    """Show a replay while it runs, then what became of it; an interrupt leaves it running."""
    from redrive.model.replay import ReplayState

    try:
        replay = in_session(lambda app: _follow(app, replay_id), store=store)
    except KeyboardInterrupt:
        print_warning(
            f"no longer following, and replay {replay_id} goes on. See it with `redrive replay "
            f"show {replay_id} --follow`, end it with `redrive replay cancel {replay_id}`."
        )
        raise typer.Exit(_INTERRUPTED) from None
    _print(replay, json=json)
    if replay.failed or replay.state is not ReplayState.DONE:
        raise typer.Exit(1)


async def _follow(app: Operated, replay_id: int) -> Replay:
    from redrive.cli.show.progress import watching
    from redrive.clock import SystemClock
    from redrive.model.replay import ReplayState

    clock = SystemClock()
    replay = await app.operations.show_replay(replay_id)
    if replay.state is ReplayState.RUNNING and not (await app.operations.status()).workers:
        print_warning("no worker is running, and only workers send letters; start one.")
    with watching(replay) as tell:
        while replay.state is ReplayState.RUNNING:
            await clock.sleep(1 / _LOOKS_PER_SECOND)
            replay = await app.operations.show_replay(replay_id)
            tell(replay)
    return replay


def _print(replay: Replay, *, json: bool) -> None:
    if json:
        print_json(replay)
    else:
        from redrive.cli.show.replays import replay as shown
        from redrive.clock import SystemClock

        print_result(*shown(replay, now=SystemClock().now()))
