"""Replays of many: what one would take, one with its counts, and many in a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from shlex import quote

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, brief, counted, instant, safe, short
from redrive.model.duration import rough_duration, spell_duration
from redrive.model.edit import Change, ChangeKind
from redrive.model.limits import spell_rate
from redrive.model.replay import ReplayState
from redrive.operations import AutomaticReplay, ReplayPlan
from redrive.store import Query, Replay

__all__ = ["REPLAY_STYLES", "difference", "left_behind", "plan", "replay", "replays", "started"]

_NOTABLE = timedelta(seconds=1)
_MOST_RATES = 5
REPLAY_STYLES = {
    ReplayState.RUNNING: "cyan",
    ReplayState.PAUSED: "yellow",
    ReplayState.STOPPED: "red",
    ReplayState.CANCELLED: "yellow",
    ReplayState.DONE: "green",
}
_MARKS = {
    ChangeKind.ADDED: ("+", "green"),
    ChangeKind.REMOVED: ("-", "red"),
    ChangeKind.CHANGED: ("~", "yellow"),
}


def plan(planned: ReplayPlan) -> Iterator[RenderableType]:
    """Show what a replay would take, and what stands in its way."""
    survey = planned.survey
    if not survey.selected:
        yield Text("No dead letter matches, so there is nothing to replay.")
        return
    yield Text(f"A replay would take {counted(survey.selected, 'dead letter')}.", style="bold")
    yield ""
    table = Listing()
    table.add_figures("By", is_text=True)
    table.add_figures("Letters")
    table.add_words("")
    for name, count in survey.destinations:
        table.add_row("destination", short(count), safe(name))
    for reason, count in survey.reasons:
        table.add_row("reason", short(count), str(reason))
    for group, title, count in survey.groups:
        table.add_row("group", short(count), f"{safe(group)}  {brief(safe(title))}")
    for tenant, count in survey.tenants:
        table.add_row("tenant", short(count), safe(tenant))
    yield table
    yield ""
    yield from _obstacles(planned)
    yield Text(_duration(planned))


def started(begun: Replay) -> Iterator[RenderableType]:
    """Say that a replay has begun, and how to see it."""
    letters = counted(begun.selected, "dead letter")
    yield Text(f"Started replay {begun.id} of {letters}; workers drive it.")
    yield Text(f"Follow it with: redrive replay show {begun.id} --follow", style="dim")


def replay(one: Replay, *, now: datetime) -> Iterator[RenderableType]:
    """Show one replay, how far it has come, and what may be done."""
    yield Text.assemble(
        (f"Replay {one.id}: ", "bold"),
        (one.state, f"bold {REPLAY_STYLES[one.state]}"),
        _because(one),
    )
    yield ""
    table = _grid()
    for name, count in (
        ("Selected", one.selected),
        ("Sent", one.sent),
        ("Delivered", one.delivered),
        ("Failed again", one.failed),
        ("Skipped", one.skipped),
    ):
        table.add_row(name, f"{count:,}")
    for name, count in (
        ("Under way", one.under_way),
        ("Left", one.left),
        ("New meanwhile", one.newcomers or 0),
    ):
        if count:
            table.add_row(name, f"{count:,}")
    if one.wave.number:
        table.add_row("Wave", f"{one.wave.number}, of {counted(one.wave.size, 'letter')}")
    if one.pace.rate is not None:
        table.add_row("Rate", spell_rate(one.pace.rate))
    table.add_row("Of", safe(_described(one)))
    table.add_row("To", safe(", ".join(one.destinations)))
    if one.generation is not None:
        table.add_row("Generation", safe(one.generation))
    table.add_row("Started", f"{instant(one.started_at, now)} by {safe(one.by)}")
    if one.why:
        table.add_row("Why", safe(one.why))
    yield Padding(table, (0, 0, 0, 2), expand=False)
    steps = list(_next_steps(one))
    if steps:
        yield ""
        yield Text("What to do", style="bold")
        grid = _grid()
        for what, command in steps:
            grid.add_row(what, command)
        yield Padding(grid, (0, 0, 0, 2), expand=False)


def left_behind(one: Replay) -> Iterator[RenderableType]:
    """Say of a replay that goes on which letters it does not send: those that failed again."""
    if not one.failed or one.state is not ReplayState.RUNNING:
        return
    letters = counted(one.failed, "letter")
    verb, it = ("is", "it") if one.failed == 1 else ("are", "them")
    yield Text(
        f"{letters} that failed again in it {verb} not sent once more; when the cause is repaired, "
        f"send {it} with:"
    )
    yield Text(f"  {_again(one)}", style="dim")


def replays(
    found: Sequence[Replay],
    auto_replays: Sequence[AutomaticReplay],
    *,
    now: datetime,
    limit: int,
) -> Iterator[RenderableType]:
    """Show replays, and when others begin by themselves."""
    if not found:
        yield Text("Nothing was replayed in bulk yet.")
    else:
        table = Listing()
        for name in ("ID", "State", "Delivered", "Failed", "Started"):
            table.add_figures(name, is_text=name in {"State", "Started"})
        table.add_words("Of")
        for one in found:
            table.add_row(
                str(one.id),
                Text(one.state, style=REPLAY_STYLES[one.state]),
                f"{one.delivered:,}/{one.selected - one.skipped:,}",
                short(one.failed),
                ago(one.started_at, now),
                _summary(one),
            )
        yield table
        if len(found) == limit:
            yield ""
            yield Text(f"Older ones: add --before {found[-1].id}", style="dim")
    if auto_replays:
        yield ""
        yield Text("By themselves", style="bold")
        grid = _grid()
        for automatic in auto_replays:
            auto = automatic.auto_replay
            grid.add_row(
                safe(automatic.destination),
                f"{auto.cron}, due {ago(automatic.next_at, now)}: at most {auto.batch:,} "
                f"letters no older than {spell_duration(auto.max_age)}, "
                f"each {counted(auto.cycles, 'time')} at most",
            )
        yield Padding(grid, (0, 0, 0, 2), expand=False)


def difference(changes: Sequence[Change], more: int = 0) -> Iterator[RenderableType]:
    """Show what an edit changes, place by place."""
    for change in changes:
        mark, style = _MARKS[change.kind]
        text = Text(f"{mark} {safe(change.path)}: ", style=style)
        text.append(" → ".join(safe(one) for one in (change.before, change.after) if one))
        yield text
    if more:
        yield Text(f"… and {more:,} more changes", style="dim")


def _obstacles(planned: ReplayPlan) -> Iterator[RenderableType]:
    survey = planned.survey
    for name in planned.paused:
        yield Text(f"{safe(name)} is paused: what is sent waits until it is resumed.", "yellow")
    for name in planned.broken:
        yield Text(f"The breaker of {safe(name)} is not closed: what is sent waits.", "yellow")
    if survey.in_lanes:
        verb = "keeps" if survey.in_lanes == 1 else "keep"
        yield Text(f"{counted(survey.in_lanes, 'letter')} {verb} the order of a key.")
    if survey.behind:
        yield Text(
            f"{counted(survey.behind, 'letter')} would be skipped: behind a dead letter of the "
            "same key that is not selected.",
            "yellow",
        )


def _duration(planned: ReplayPlan) -> str:
    span = planned.takes_at_least
    if span is None:
        return "No rate holds it back."
    if span >= _NOTABLE:
        return f"At the rates that hold it takes {rough_duration(span)} or more."
    named = ", ".join(
        f"{safe(name)} {spell_rate(rate)}" for name, rate in planned.rates[:_MOST_RATES]
    )
    if len(planned.rates) > _MOST_RATES:
        named += f" and {len(planned.rates) - _MOST_RATES:,} more"
    return f"At the rates that hold{f' ({named})' if named else ''} it takes less than a second."


def _because(one: Replay) -> str:
    by = f" by {safe(one.changed_by)}" if one.changed_by else ""
    return f"{by}: {safe(one.reason)}" if one.reason else by


def _summary(one: Replay) -> Text:
    text = Text(safe(_described(one)))
    text.append(f"  by {safe(one.by)}", style="dim")
    if one.why or one.reason:
        text.append(f"\n{safe(one.reason or one.why)}", style="dim")
    return text


def _described(one: Replay) -> str:
    if one.query is None:
        return f"{counted(one.selected, 'dead letter')} by number"
    return _filters(one.query) or "all dead letters"


def _filters(query: Query) -> str:
    named = {
        "group": query.group,
        "destination": query.destination,
        "type": query.event_type,
        "event": query.event_id,
        "key": query.key,
        "tenant": query.tenant,
        "reason": query.reason,
        "error": query.error_class,
        "since": query.since and f"{query.since:%Y-%m-%d %H:%M} UTC",
        "until": query.until and f"{query.until:%Y-%m-%d %H:%M} UTC",
        "text": query.text,
    }
    return ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)


def _next_steps(one: Replay) -> Iterator[tuple[str, str]]:
    match one.state:
        case ReplayState.RUNNING:
            yield "Follow it", f"redrive replay show {one.id} --follow"
            yield "Hold it", f"redrive replay pause {one.id}"
        case ReplayState.PAUSED:
            yield "Go on", f"redrive replay resume {one.id}"
            yield "End it", f"redrive replay cancel {one.id}"
        case ReplayState.STOPPED:
            yield "See what failed", "redrive dlq groups"
            yield "Go on after a repair", f"redrive replay resume {one.id}"
            yield "Leave the rest alone", f"redrive replay cancel {one.id}"
        case ReplayState.DONE | ReplayState.CANCELLED:
            if one.failed:
                yield "See what failed again", f"redrive dlq list {_since(one)}"
                yield "Send that once more", _again(one)


def _again(one: Replay) -> str:
    """Return the command that sends what has failed again: by what no failure changes."""
    query = one.query or Query()
    only = one.destinations[0] if len(one.destinations) == 1 else None
    lasting = {
        "destination": query.destination or only,
        "type": query.event_type,
        "event": query.event_id,
        "key": query.key,
        "tenant": query.tenant,
    }
    filters = [f"--{name} {quote(safe(value))}" for name, value in lasting.items() if value]
    return " ".join(("redrive replay start --all-matching", *filters, _since(one)))


def _since(one: Replay) -> str:
    return f"--since {one.started_at:%Y-%m-%dT%H:%M:%SZ}"


def _grid() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table
