"""The circuit breaker: holds back from a destination that is down, and finds out when it is not.

Every change of state begins a new generation; what was sent in an older one no longer counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from redrive.model.gate import BreakerState, Closed, HalfOpen, Open
from redrive.model.limits import Breaker, Rate

__all__ = [
    "checked",
    "forced_open",
    "is_known",
    "last_probed",
    "permitted",
    "probing",
    "ramp",
    "reported",
    "reset",
]

_SHARE = 0.5
"""The part of the time that a destination has been down for which it is left alone."""
_SPREAD = 0.2
_MOST_PROBED = 50
_LEAST_TRIES = 2
_RAMP_BEGINS = 10.0
_RAMP_DOUBLINGS = 10
_RAMP_BURST_SHARE = 10


def permitted(
    state: BreakerState, breaker: Breaker | None, *, now: datetime
) -> tuple[BreakerState, int | None]:
    """Return the state as of now, and how many calls may be under way; `None` is no limit.

    Where there is no breaker, one that a person opened closes when its time is over: nothing
    would count the probes.
    """
    match state:
        case Closed():
            return state, None
        case Open(until=until) if until is None or now < until:
            return state, 0
        case Open() | HalfOpen():
            if breaker is None:
                return reset(state, now=now), None
            if isinstance(state, Open):
                state = _half_opened(state, now=now)
            return state, breaker.probes
        case never:
            assert_never(never)


def probing(state: BreakerState, deliveries: Sequence[int], *, now: datetime) -> BreakerState:
    """Return the state after these have passed; where it is half-open, they are its probes."""
    if not isinstance(state, HalfOpen) or not deliveries:
        return state
    earlier = [one for one in state.probed if one not in deliveries]
    probed = (*earlier, *deliveries)[-_MOST_PROBED:]
    return msgspec.structs.replace(state, probed=probed, probed_at=now)


def last_probed(state: BreakerState) -> Sequence[int]:
    """Return the deliveries that are not to be the next probe, if there are others.

    The one that may be the first after those others comes first.
    """
    return state.probed if isinstance(state, HalfOpen) else ()


def is_known(state: BreakerState, delivery: int) -> bool:
    """Tell whether a delivery was a probe in vain, and another has arrived since.

    A healthy answer to a health check says nothing of that.
    """
    return isinstance(state, HalfOpen) and state.is_answered and delivery in state.probed


def reported(
    state: BreakerState,
    breaker: Breaker | None,
    *,
    is_success: bool,
    generation: int,
    now: datetime,
    chance: float,
    exhausts: int = 0,
) -> BreakerState:
    """Return the state after a call that began in `generation`; `chance` is from 0 to 1.

    `exhausts` is which try of its delivery it was, if it was the last one that had.
    """
    if breaker is None or generation != state.generation:
        return state
    match state:
        case Closed() if is_success and breaker.rate is None and not state.in_a_row:
            return state
        case Closed():
            counted = _counted(state, breaker, is_success=is_success, now=now)
            is_down = _is_down(counted, breaker, exhausts=exhausts)
            return (
                _opened(counted, breaker, times=1, now=now, chance=chance) if is_down else counted
            )
        case Open():
            return state
        case HalfOpen() if is_success:
            return _probed(msgspec.structs.replace(state, is_answered=True), breaker, now=now)
        case HalfOpen():
            return _opened(state, breaker, times=state.times + 1, now=now, chance=chance)
        case never:
            assert_never(never)


def checked(
    state: BreakerState,
    breaker: Breaker | None,
    *,
    is_healthy: bool,
    generation: int,
    now: datetime,
) -> BreakerState:
    """Return the state after a health check that began in `generation`.

    A healthy answer ends the open time early and is the first successful probe. One that a person
    opened without an end stays open, whatever the destination says.
    """
    match state:
        case Open(until=until) if (
            breaker is not None
            and until is not None
            and is_healthy
            and generation == state.generation
        ):
            return _probed(_half_opened(state, now=now), breaker, now=now)
        case _:
            return state


def ramp(breaker: Breaker | None, *, reopened_at: datetime | None, now: datetime) -> Rate | None:
    """Return how fast what has waited may go out now; `None` once the ramp is over.

    It begins at ten a second and doubles ten times over the ramp. A rate that the destination has
    holds beside it.
    """
    if breaker is None or not breaker.ramp or reopened_at is None:
        return None
    if now - reopened_at >= breaker.ramp:
        return None
    share = max(0.0, (now - reopened_at) / breaker.ramp)
    pace = _RAMP_BEGINS * 2.0 ** (_RAMP_DOUBLINGS * share)
    return Rate(per_second=pace, burst=max(_RAMP_BEGINS, pace / _RAMP_BURST_SHARE))


def _half_opened(state: Open, *, now: datetime) -> HalfOpen:
    return HalfOpen(
        generation=state.generation + 1,
        since=now,
        times=state.times,
        down_since=state.down_since,
        probed=state.probed,
    )


def _probed(state: HalfOpen, breaker: Breaker, *, now: datetime) -> BreakerState:
    if state.successes + 1 >= breaker.successes:
        return reset(state, now=now)
    return msgspec.structs.replace(state, successes=state.successes + 1)


def reset(state: BreakerState, *, now: datetime) -> Closed:
    """Return the breaker closed, with nothing counted."""
    return Closed(generation=state.generation + 1, since=now)


def forced_open(state: BreakerState, *, until: datetime | None, now: datetime) -> Open:
    """Return the breaker as a person opened it."""
    return Open(
        generation=state.generation + 1, since=now, until=until, down_since=state.down_since
    )


def _counted(state: Closed, breaker: Breaker, *, is_success: bool, now: datetime) -> Closed:
    in_a_row = 0 if is_success else state.in_a_row + 1
    if in_a_row != state.in_a_row:
        down_since = None if is_success else state.down_since or now
        state = msgspec.structs.replace(state, in_a_row=in_a_row, down_since=down_since)
    if breaker.rate is None:
        return state
    if state.window_began is None or now >= state.window_began + breaker.window:
        return msgspec.structs.replace(state, window_began=now, calls=1, failed=int(not is_success))
    return msgspec.structs.replace(
        state, calls=state.calls + 1, failed=state.failed + (not is_success)
    )


def _is_down(state: Closed, breaker: Breaker, *, exhausts: int) -> bool:
    if state.in_a_row >= breaker.failures:
        return True
    # Nothing was answered since that delivery was first tried: it is not to die of an outage. A
    # single try, where nobody wants another, proves nothing.
    if _LEAST_TRIES <= exhausts <= state.in_a_row:
        return True
    return (
        breaker.rate is not None
        and state.calls >= breaker.least_calls
        and state.failed >= breaker.rate * state.calls
    )


def _opened(
    state: Closed | HalfOpen, breaker: Breaker, *, times: int, now: datetime, chance: float
) -> Open:
    is_back = isinstance(state, HalfOpen) and state.is_answered
    down_since = now if is_back or state.down_since is None else state.down_since
    wait = min(max(breaker.open_for, (now - down_since) * _SHARE), breaker.longest_open)
    wait = max(breaker.open_for, wait * (1.0 - _SPREAD * chance))
    probed_at = state.probed_at if isinstance(state, HalfOpen) else None
    # A probe that hung has been a part of the wait for the next one.
    began = now if probed_at is None else min(now, probed_at)
    return Open(
        generation=state.generation + 1,
        since=now,
        until=max(began + wait, now + breaker.open_for),
        times=times,
        down_since=down_since,
        probed=state.probed if isinstance(state, HalfOpen) else (),
    )
