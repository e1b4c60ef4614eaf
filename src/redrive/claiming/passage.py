"""The passage of a gate: how much it lets through now, and what that costs.

Pure functions of the shared state. A store calls them within its own transaction, so that tokens
and probes are taken once, whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from redrive.model.delivery import Kind
from redrive.model.gate import Bucket, Closed, Gate, Hold, Open, Override
from redrive.model.limits import Limits, Rate
from redrive.policies import breaker as breakers
from redrive.policies.buckets import awaited, rewound, taken, whole
from redrive.policies.gate import with_breaker, without_lost_calls

__all__ = ["SHUT", "Passage", "admitted", "charged", "ending", "is_counted", "is_plain", "passage"]

_PLENTY = 1_000_000
_BUDGET = Rate(per_second=10.0, burst=100.0)
"""What retries may always have; first attempts add their share to it."""

SHUT = frozenset({Hold.PAUSED, Hold.BREAKER_OPEN, Hold.SLOWED})
"""The holds behind which nothing passes, whatever it is."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate lets through now.

    `held_first` are the first attempts that waited behind a closed gate and pay as retries do;
    `paced` bounds all that waited, and retries, while the gate has just reopened. `holds` say what
    limits it; `again_at` is when the gate may let through more.
    """

    total: int
    first: int
    held_first: int
    retries: int
    replays: int
    paced: int = _PLENTY
    holds: tuple[Hold, ...] = ()
    again_at: datetime | None = None


def passage(
    gate: Gate,
    limits: Limits,
    *,
    in_flight: int,
    probing: int,
    now: datetime,
    is_blocked: bool = False,
) -> tuple[Gate, Passage]:
    """Return the gate as of now, and what it lets through.

    `in_flight` counts the destination's attempts under way over all workers, `probing` those of
    them that began in the breaker's present generation; requests under way are added to both.
    `is_blocked` says that a dead letter stops
    a destination that keeps order that way.
    """
    gate = rewound(gate, now=now)
    if gate.calls:
        gate = without_lost_calls(gate, now=now)
    calls: int | None = None
    if not isinstance(gate.breaker, Closed):
        state, calls = breakers.permitted(gate.breaker, limits.breaker, now=now)
        if state is not gate.breaker:
            gate = with_breaker(gate, state, now=now)
    shut = (Hold.BLOCKED, None) if is_blocked else _shut(gate, now=now)
    if shut is not None:
        hold, until = shut
        return gate, Passage(
            total=0, first=0, held_first=0, retries=0, replays=0, holds=(hold,), again_at=until
        )
    for one in gate.calls:
        in_flight += 1
        probing += one.generation == gate.breaker.generation
    return gate, _open_passage(
        gate, limits, calls=calls, in_flight=in_flight, probing=probing, now=now
    )


def _open_passage(
    gate: Gate,
    limits: Limits,
    *,
    calls: int | None,
    in_flight: int,
    probing: int,
    now: datetime,
) -> Passage:
    holds: list[Hold] = []
    again: list[datetime] = []
    total = _PLENTY
    if limits.concurrency is not None:
        total = max(0, limits.concurrency - in_flight)
        if not total:
            holds.append(Hold.CONCURRENCY)
    if calls is not None:
        is_checking = gate.check_until is not None and now < gate.check_until
        total = min(total, max(0, calls - probing - is_checking))
        if is_checking and gate.check_until is not None:
            again.append(gate.check_until)
        holds.append(Hold.PROBING)
    paced = _PLENTY
    if gate.reopened_at is not None:
        ramp = breakers.ramp(limits.breaker, reopened_at=gate.reopened_at, now=now)
        paced = _available(gate.ramp, ramp, Hold.RAMP, holds, again, now=now)
    first = _available(gate.first, limits.rate, Hold.RATE, holds, again, now=now)
    retries = _available(gate.retry, limits.retry_rate, Hold.RETRY_RATE, holds, again, now=now)
    replays = _available(gate.replay, limits.replay_rate, Hold.REPLAY_RATE, holds, again, now=now)
    held_first = retries
    if limits.retry_budget is not None:
        budget = _available(gate.budget, _BUDGET, Hold.RETRY_BUDGET, holds, again, now=now)
        retries = min(retries, budget)
    return Passage(
        total=total,
        first=first,
        held_first=held_first,
        retries=retries,
        replays=replays,
        paced=paced,
        holds=tuple(holds) if holds else (),
        again_at=min(again) if again else None,
    )


def ending(passage: Passage, override: Override | None) -> Passage:
    """Return what is let through while there is an override: its end may let through more."""
    if override is None or not passage.holds:
        return passage
    again_at = min(override.until, passage.again_at or override.until)
    return msgspec.structs.replace(passage, again_at=again_at)


def is_plain(gate: Gate, allowed: Passage, limits: Limits, *, now: datetime) -> bool:
    """Tell whether fresh first attempts pass as they come, and leave the gate as it was.

    Fresh is what has come due since the gate was reopened, if it ever was.
    """
    return (
        not allowed.holds
        and limits.shared_rate is None
        and allowed.again_at is None
        and min(allowed.total, allowed.first) >= _PLENTY
        and charged(gate, limits, {Kind.FIRST: 1}, held_first=0, paced=0, now=now) == gate
    )


def admitted(
    gate: Gate, allowed: Passage, limits: Limits, wanted: int, *, now: datetime
) -> tuple[Gate, int]:
    """Return how many first attempts may be made past the store, and the gate after that.

    Nothing passes a gate that is not fully open, and nobody knows whose turn it is at a rate that
    is shared.
    """
    is_open = isinstance(gate.breaker, Closed) and allowed.paced >= _PLENTY
    if not is_open or limits.shared_rate is not None:
        return gate, 0
    passes = min(wanted, allowed.total, allowed.first)
    if not passes:
        return gate, 0
    return charged(gate, limits, {Kind.FIRST: passes}, held_first=0, now=now), passes


def is_counted(limits: Limits) -> bool:
    """Tell whether each first attempt changes how many more there may be."""
    return limits.rate is not None or limits.retry_budget is not None


def charged(
    gate: Gate,
    limits: Limits,
    passed: Mapping[Kind, int],
    *,
    held_first: int,
    paced: int = 0,
    now: datetime,
) -> Gate:
    """Return the gate after these passed; `held_first` of the first attempts pay as retries.

    `paced` of all are what has waited, or are retries.
    """
    first = retries = replays = 0
    for kind, count in passed.items():  # an enumeration's hash costs more than looking at all
        if kind is Kind.FIRST:
            first = count
        elif kind is Kind.RETRY:
            retries = count
        else:
            replays = count
    bucket = taken(gate.first, limits.rate, first - held_first, now=now)
    if limits.retry_budget is None and not (retries or held_first or replays or paced):
        return gate if bucket is gate.first else msgspec.structs.replace(gate, first=bucket)
    budget = gate.budget
    if limits.retry_budget is not None:
        earned = limits.retry_budget * first
        budget = taken(budget, _BUDGET, retries - earned, now=now)
    return msgspec.structs.replace(
        gate,
        first=bucket,
        retry=taken(gate.retry, limits.retry_rate, retries + held_first, now=now),
        replay=taken(gate.replay, limits.replay_rate, replays, now=now),
        budget=budget,
        ramp=taken(
            gate.ramp,
            breakers.ramp(limits.breaker, reopened_at=gate.reopened_at, now=now),
            paced,
            now=now,
        ),
    )


def _shut(gate: Gate, *, now: datetime) -> tuple[Hold, datetime | None] | None:
    if gate.pause is not None:
        return Hold.PAUSED, None
    if isinstance(gate.breaker, Open):
        return Hold.BREAKER_OPEN, gate.breaker.until
    if gate.slow_until is not None and now < gate.slow_until:
        return Hold.SLOWED, gate.slow_until
    return None


def _available(
    bucket: Bucket,
    rate: Rate | None,
    hold: Hold,
    holds: list[Hold],
    again: list[datetime],
    *,
    now: datetime,
) -> int:
    if rate is None:
        return _PLENTY
    tokens = whole(bucket, rate, now=now)
    if not tokens:
        holds.append(hold)
        again.append(awaited(bucket, rate, now=now))
    return tokens
