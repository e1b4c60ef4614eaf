"""What holds a destination: a light for its breaker, and the reasons in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import assert_never

from rich.text import Text

from redrive.cli.show.destinations import held
from redrive.cli.show.words import ago, counted, safe
from redrive.model.duration import rough_duration
from redrive.model.gate import Closed, GateFigures, HalfOpen, Hold, Open
from redrive.model.limits import Rate, spell_rate
from redrive.store import DestinationFigures

__all__ = ["light", "reasons"]

_MOMENT = timedelta(seconds=1)


def light(gate: GateFigures | None) -> Text:
    """Return one sign for the state of a gate."""
    if gate is None:
        return Text("·", style="dim")
    if gate.gate.pause is not None:
        return Text("‖", style="bold yellow")
    match gate.gate.breaker:
        case Open():
            return Text("✗", style="bold red")
        case HalfOpen():
            return Text("◐", style="bold yellow")
        case Closed():
            return Text("·", style="dim") if gate.limits.breaker is None else _CLOSED
        case never:
            assert_never(never)


_CLOSED = Text("●", style="green")


def reasons(
    gate: GateFigures | None, destination: DestinationFigures, *, now: datetime
) -> Iterator[Text]:
    """Say what holds a destination, since when and for how long."""
    if gate is None:
        return
    pause = gate.gate.pause
    if pause is not None:
        why = f": {safe(pause.why)}" if pause.why else ""
        yield Text(f"paused by {safe(pause.by)} {ago(pause.at, now)}{why}", style="yellow")
    match gate.gate.breaker:
        case Open(since=since, until=until, times=times):
            yield _open(since, until, times, now=now)
        case HalfOpen(since=since, successes=successes):
            needed = gate.limits.breaker.successes if gate.limits.breaker else successes
            yield Text(
                f"breaker half-open for {_span(since, now)}, {successes} of "
                f"{counted(needed, 'success', 'successes')}",
                style="yellow",
            )
        case Closed():
            pass
        case never:
            assert_never(never)
    if gate.hold not in {Hold.PAUSED, Hold.BREAKER_OPEN, Hold.PROBING} and held(gate, destination):
        yield from _limit(gate, now=now)


def _open(since: datetime, until: datetime | None, times: int, *, now: datetime) -> Text:
    end = "until it is reset" if until is None else f"tried again {ago(until, now)}"
    again = f", {times} times in a row" if times > 1 else ""
    return Text(f"breaker open for {_span(since, now)}, {end}{again}", style="red")


def _limit(gate: GateFigures, *, now: datetime) -> Iterator[Text]:
    if gate.hold is None:
        return
    has_end = gate.until is not None and gate.until >= now + _MOMENT
    left = f", {_span(now, gate.until)} left" if has_end and gate.until else ""
    yield Text(f"{_LIMITS.get(gate.hold, gate.hold.label)}{_size(gate)}{left}", style="yellow")


_LIMITS = {
    Hold.BLOCKED: "blocked by a dead letter",
    Hold.SLOWED: "slowed as it asked (Retry-After)",
}


def _size(gate: GateFigures) -> str:
    shared = gate.limits.shared_rate
    size: Rate | int | float | None = {
        Hold.RATE: gate.limits.rate,
        Hold.RETRY_RATE: gate.limits.retry_rate,
        Hold.REPLAY_RATE: gate.limits.replay_rate,
        Hold.SHARED_RATE: None if shared is None else shared.rate,
        Hold.CONCURRENCY: gate.limits.concurrency,
        Hold.RETRY_BUDGET: gate.limits.retry_budget,
    }.get(gate.hold or Hold.PAUSED)
    match size:
        case None:
            return ""
        case Rate():
            return f" of {spell_rate(size)}"
        case int():
            return f" of {size}"
        case float():
            return f" of {size:.0%}"


def _span(begin: datetime, end: datetime) -> str:
    return rough_duration(abs(end - begin))
