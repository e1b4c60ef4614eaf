"""The gate of a destination: what results, people and probes make of it.

Pure functions of the shared state, which a store calls within its own transaction. How much a gate
lets through is in `redrive.claiming.passage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.delivery import Leased
from redrive.model.gate import (
    BreakerState,
    Bucket,
    Call,
    Closed,
    Failure,
    Gate,
    HalfOpen,
    Pause,
)
from redrive.model.limits import Limits
from redrive.policies import breaker as breakers

__all__ = [
    "called",
    "calling",
    "marked",
    "passed",
    "paused",
    "reported",
    "resumed",
    "slowed",
    "with_breaker",
    "without_lost_calls",
]


def reported(
    gate: Gate,
    limits: Limits,
    *,
    is_success: bool,
    times: int,
    generation: int,
    now: datetime,
    chance: float,
    error: str = "",
    exhausts: int = 0,
) -> Gate:
    """Return the gate after attempts of one result that began in the breaker's `generation`.

    `error` says how they failed, and `exhausts` which try of its delivery was the last one.
    """
    state = gate.breaker
    for _ in range(times):
        after = breakers.reported(
            state,
            limits.breaker,
            is_success=is_success,
            generation=generation,
            now=now,
            chance=chance,
            exhausts=exhausts,
        )
        if after is state:
            break
        state = after
    if state is gate.breaker:
        return gate
    if not is_success:
        gate = msgspec.structs.replace(gate, last_failure=Failure(error=error, at=now))
    return with_breaker(gate, state, now=now)


def passed(gate: Gate, deliveries: Sequence[int], *, now: datetime) -> Gate:
    """Return the gate after these deliveries have passed; the breaker may count them as probes."""
    state = breakers.probing(gate.breaker, deliveries, now=now)
    return gate if state is gate.breaker else with_breaker(gate, state, now=now)


def marked(leased: Leased, gate: Gate) -> Leased:
    """Return a lease that tells whether it is a probe, by the gate before it has passed."""
    if not isinstance(gate.breaker, HalfOpen):
        return leased
    known = breakers.is_known(gate.breaker, leased.lease.delivery_id)
    return msgspec.structs.replace(leased, is_probe=True, is_known=known)


def calling(gate: Gate, call: Call) -> Gate:
    """Return the gate with a request under way."""
    return msgspec.structs.replace(gate, calls=(*gate.calls, call))


def called(gate: Gate, call: str) -> Gate:
    """Return the gate after a request has ended."""
    left = tuple(one for one in gate.calls if one.id != call)
    return gate if len(left) == len(gate.calls) else msgspec.structs.replace(gate, calls=left)


def without_lost_calls(gate: Gate, *, now: datetime) -> Gate:
    """Return the gate without requests whose end nobody has told, and whose time is over."""
    left = tuple(one for one in gate.calls if now < one.until)
    return gate if len(left) == len(gate.calls) else msgspec.structs.replace(gate, calls=left)


def with_breaker(gate: Gate, state: BreakerState, *, now: datetime) -> Gate:
    """Return the gate with its breaker in another state."""
    if state.generation == gate.breaker.generation:
        return msgspec.structs.replace(gate, breaker=state)
    changed = msgspec.structs.replace(gate, breaker=state, next_check=None)
    closes = isinstance(state, Closed) and not isinstance(gate.breaker, Closed)
    return _reopened(changed, now=now) if closes else changed


def slowed(gate: Gate, *, until: datetime) -> Gate:
    """Return the gate shut until an instant that the destination asked for."""
    if gate.slow_until is not None and gate.slow_until >= until:
        return gate
    return msgspec.structs.replace(gate, slow_until=until)


def paused(gate: Gate, pause: Pause) -> Gate:
    """Return the gate shut by a person."""
    return msgspec.structs.replace(gate, pause=pause)


def resumed(gate: Gate, *, now: datetime) -> Gate:
    """Return the gate no longer shut by a person; what waited goes on at the pace of retries."""
    return _reopened(msgspec.structs.replace(gate, pause=None), now=now)


def _reopened(gate: Gate, *, now: datetime) -> Gate:
    return msgspec.structs.replace(gate, reopened_at=now, ramp=Bucket())
