"""Token buckets: how many tokens there are, when there are more, and what is left of them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec

from redrive.model.gate import Bucket, Gate
from redrive.model.limits import Rate

__all__ = ["awaited", "refilled", "rewound", "taken", "whole"]

_BUCKETS = ("first", "retry", "replay", "budget", "ramp")
_ROUNDING = 1e-6
_SET_BACK = timedelta(seconds=10)
"""Concurrent claims may be a moment apart; a larger gap means that the clock was set."""


def refilled(bucket: Bucket, rate: Rate, *, now: datetime) -> float:
    """Return the tokens there are now.

    Where a clock was set back there is at least one: taking it makes the bucket fill from now on.
    """
    if bucket.at is None:
        return rate.burst
    tokens = bucket.tokens
    if now > bucket.at:
        tokens += (now - bucket.at).total_seconds() * rate.per_second
    elif bucket.at - now > _SET_BACK:
        tokens = max(tokens, 1.0)
    return min(rate.burst, tokens)


def whole(bucket: Bucket, rate: Rate, *, now: datetime) -> int:
    """Return how many attempts there are tokens for now."""
    # Rounding in the refill must not cost the token that the wait was computed for.
    return int(refilled(bucket, rate, now=now) + _ROUNDING)


def awaited(bucket: Bucket, rate: Rate, *, wanted: float = 1.0, now: datetime) -> datetime:
    """Return when there are so many tokens: the first instant at which they are all there.

    It is rounded up to a whole microsecond. Rounded down, the tokens would not be there yet at that
    instant, and a caller that looks again then would be told the same instant for ever.
    """
    missing = wanted - refilled(bucket, rate, now=now)
    if missing <= 0:
        return now
    begin = now if bucket.at is None else max(now, bucket.at)
    return begin + timedelta(microseconds=math.ceil(missing / rate.per_second * 1e6))


def taken(bucket: Bucket, rate: Rate | None, count: float, *, now: datetime) -> Bucket:
    """Return the bucket without so many tokens; without a rate nothing is taken."""
    if rate is None or not count:
        return bucket
    tokens = min(rate.burst, refilled(bucket, rate, now=now) - count)
    if bucket.at is None or bucket.at - now > _SET_BACK:
        return Bucket(tokens, now)
    # A claim that is a moment behind must not refill the time that others have refilled already.
    return Bucket(tokens, max(now, bucket.at))


def rewound(gate: Gate, *, now: datetime) -> Gate:
    """Return the gate with buckets that fill from now on, where a clock was set back.

    They would wait until it shows again what it has shown before.
    """
    for bucket in (gate.first, gate.retry, gate.replay, gate.budget, gate.ramp):
        if bucket.at is not None and bucket.at > now:
            break
    else:
        return gate
    latest = now + _SET_BACK
    ahead = {
        name: Bucket(bucket.tokens, now)
        for name in _BUCKETS
        if (bucket := getattr(gate, name)).at is not None and bucket.at > latest
    }
    return msgspec.structs.replace(gate, **ahead) if ahead else gate
