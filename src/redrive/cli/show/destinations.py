"""Destinations: what limits them, what holds them now, and their breakers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import assert_never

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, counted, safe
from redrive.model.duration import rough_duration, spell_duration
from redrive.model.gate import (
    BreakerChange,
    BreakerState,
    Closed,
    GateFigures,
    HalfOpen,
    Hold,
    Open,
    Override,
)
from redrive.model.limits import Breaker, Limits, spell_rate
from redrive.policies.attention import orphans, stranded
from redrive.store import DestinationFigures, Figures, LaneFigures

__all__ = ["breakers", "changed", "destinations", "held", "lanes", "neglect", "overridden"]

_LONGEST_ERROR = 120

_NONE = "No destination yet; a worker registers those of its app when it starts."
_SHUT = (Hold.PAUSED, Hold.BLOCKED, Hold.BREAKER_OPEN, Hold.PROBING, Hold.SLOWED)


def destinations(figures: Figures, gates: Sequence[GateFigures]) -> Iterator[RenderableType]:
    """Show each destination with its breaker, what holds it and what limits it."""
    if not gates:
        yield Text(_NONE)
        return
    known = {one.name: one for one in figures.destinations}
    neglected = neglect(figures)
    table = Listing()
    table.add_words("Destination")
    table.add_figures("Breaker", "Held", is_text=True)
    table.add_words("Limits", lines="folded")
    for one in gates:
        table.add_row(
            _name(one, known.get(one.destination), neglected.get(one.destination, "")),
            _state(one),
            _hold(one, known.get(one.destination), now=figures.now),
            _limits(one, now=figures.now),
        )
    yield table


def lanes(found: Sequence[LaneFigures], *, now: datetime) -> Iterator[RenderableType]:
    """Show the keys that wait behind a dead letter."""
    if not found:
        yield Text("No key waits behind a dead letter.")
        return
    table = Listing()
    table.add_words("Destination", "Key")
    table.add_figures("Dead letter", is_text=True)
    table.add_figures("Waiting")
    table.add_figures("Stopped", is_text=True)
    for one in found:
        table.add_row(
            safe(one.destination),
            safe(one.key),
            f"{one.head} ({one.reason})",
            str(one.waiting),
            ago(one.since, now),
        )
    yield table
    yield Text("Replay, resolve or delete the dead letter, and its key goes on.")


def breakers(gates: Sequence[GateFigures], *, now: datetime) -> Iterator[RenderableType]:
    """Show the state of each breaker, and what happens next."""
    if not gates:
        yield Text(_NONE)
        return
    table = Listing()
    table.add_words("Destination")
    table.add_figures("State", "Since", is_text=True)
    table.add_words("Next", lines="folded")
    for one in gates:
        since = one.gate.breaker.since
        table.add_row(
            safe(one.destination),
            _state(one),
            Text("-", style="dim") if since is None else ago(since, now),
            _next(one.gate.breaker, one.limits.breaker, now=now)
            + _check(one, now=now)
            + _last_failure(one, now=now),
        )
    yield table


def changed(change: BreakerChange, *, now: datetime) -> Text:
    """Say what became of a breaker."""
    name = safe(change.destination)
    match change.after:
        case Open(until=until):
            end = ", until it is reset" if until is None else f"; the next try is {ago(until, now)}"
            return Text(f"The breaker of {name} is open{end}.")
        case Closed() | HalfOpen():
            return Text(f"The breaker of {name} is {_word(change.after)}.")
        case never:
            assert_never(never)


def held(gate: GateFigures | None, destination: DestinationFigures | None) -> str:
    """Say in a word what holds a destination; a limit holds only what is due."""
    if gate is None or gate.hold is None:
        return ""
    has_due = destination is not None and destination.oldest_due is not None
    return gate.hold.label if has_due or gate.hold in _SHUT else ""


def neglect(figures: Figures) -> Mapping[str, str]:
    """Say of which destinations, or of which of their generations, nobody takes the work."""
    said = {one.name: "orphaned" for one in orphans(figures)}
    for one in stranded(figures.due, figures.workers, now=figures.now):
        if one.destination not in said:
            said[one.destination] = f"stranded: {safe(one.generation)}"
    return said


def _name(gate: GateFigures, destination: DestinationFigures | None, neglected: str) -> Text:
    text = Text(safe(gate.destination))
    if destination is not None:
        text.append(f"\n{_wanted(destination)}", style="dim")
    if neglected:
        text.append(f"\n{neglected}", style="yellow")
    return text


def _wanted(destination: DestinationFigures) -> str:
    if destination.is_removed:
        return "removed"
    if destination.is_projection:
        return "projection of the log"
    return safe(", ".join(destination.patterns))


def _state(gate: GateFigures) -> Text:
    state = gate.gate.breaker
    if gate.limits.breaker is None and isinstance(state, Closed):
        return Text("-", style="dim")
    return Text(_word(state), style="" if isinstance(state, Closed) else "red")


def _hold(gate: GateFigures, destination: DestinationFigures | None, *, now: datetime) -> Text:
    word = held(gate, destination)
    if not word:
        return Text("-", style="dim")
    text = Text(word, style="yellow")
    if gate.until is not None and gate.until > now:
        text.append(f"\nfor {rough_duration(gate.until - now)}", style="dim")
    return text


def _limits(gate: GateFigures, *, now: datetime) -> Text:
    text = Text(" · ".join(_spelled(gate.limits)) or "none")
    if (override := gate.override) is not None:
        text.append(f"\n{_set(override, now=now)}", style="yellow")
        declared = " · ".join(_spelled(gate.declared or Limits())) or "none"
        text.append(f"\ndeclared: {declared}", style="dim")
    pause = gate.gate.pause
    if pause is not None:
        why = f": {safe(pause.why)}" if pause.why else ""
        text.append(f"\npaused by {safe(pause.by)}, {ago(pause.at, now)}{why}", style="yellow")
    return text


def overridden(gate: GateFigures | None, *, now: datetime) -> str:
    """Say which limits a person has set for a while, and for how long yet; nothing if none."""
    if gate is None or gate.override is None:
        return ""
    left = rough_duration(gate.override.until - now)
    return f"set: {gate.override.said} for {left} yet"


def _set(override: Override, *, now: datetime) -> str:
    why = f": {safe(override.why)}" if override.why else ""
    left = rough_duration(override.until - now)
    return f"{override.said} set by {safe(override.by)}, for {left} yet{why}"


def _spelled(limits: Limits) -> Iterator[str]:
    for name, rate in (
        ("rate", limits.rate),
        ("retries", limits.retry_rate),
        ("replays", limits.replay_rate),
    ):
        if rate is not None:
            yield f"{name} {spell_rate(rate)}"
    if limits.shared_rate is not None:
        shared = limits.shared_rate
        yield f"shares {spell_rate(shared.rate)} of {safe(shared.name)}"
    if limits.over_retry_rate == "dead_letter":
        yield "retries above it fail"
    if limits.breaker is not None and limits.breaker.on_open == "dead_letter":
        yield "fails while open"
    if limits.disable_after is not None:
        yield f"paused after {spell_duration(limits.disable_after)} of failures"
    if limits.retry_budget is not None:
        yield f"budget {limits.retry_budget:.0%}"
    if limits.concurrency is not None:
        yield f"{limits.concurrency} at once"


def _word(state: BreakerState) -> str:
    match state:
        case Closed():
            return "closed"
        case Open():
            return "open"
        case HalfOpen():
            return "half-open"
        case never:
            assert_never(never)


def _check(gate: GateFigures, *, now: datetime) -> str:
    check = gate.gate.next_check
    return "" if check is None else f", its health asked for {ago(max(check, now), now)}"


def _last_failure(gate: GateFigures, *, now: datetime) -> str:
    failure = gate.gate.last_failure
    if failure is None:
        return ""
    error = safe(failure.error.splitlines()[0] if failure.error else "unknown")
    shown = error if len(error) <= _LONGEST_ERROR else f"{error[: _LONGEST_ERROR - 1]}…"
    return f"; last failure {ago(failure.at, now)}: {shown}"


def _next(state: BreakerState, breaker: Breaker | None, *, now: datetime) -> str:
    match state:
        case Open(until=until):
            return "open until it is reset" if until is None else f"tried again {ago(until, now)}"
        case Closed() | HalfOpen() if breaker is None:
            return "no breaker"
        case HalfOpen(successes=successes):
            return f"closes after {breaker.successes} successes, {successes} so far"
        case Closed(in_a_row=in_a_row):
            so_far = f", {in_a_row} so far" if in_a_row else ""
            share = (
                f", or when {breaker.rate:.0%} of at least "
                f"{counted(breaker.least_calls, 'call')} in {spell_duration(breaker.window)} fail"
                if breaker.rate is not None
                else ""
            )
            return f"opens after {counted(breaker.failures, 'failure')} in a row{so_far}{share}"
        case never:
            assert_never(never)
