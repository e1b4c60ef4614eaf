"""Token buckets: how many tokens there are at an instant, and what is left when some are taken."""

from __future__ import annotations

from datetime import datetime

from redrive.model.gate import Bucket
from redrive.model.limits import Rate

__all__ = ["refilled", "taken"]


def refilled(bucket: Bucket, rate: Rate, *, now: datetime) -> float:
    """Return the tokens there are now."""
    if bucket.at is None:
        return rate.burst
    tokens = bucket.tokens
    if now > bucket.at:
        tokens += (now - bucket.at).total_seconds() * rate.per_second
    return min(rate.burst, tokens)


def taken(bucket: Bucket, rate: Rate | None, count: float, *, now: datetime) -> Bucket:
    """Return the bucket without so many tokens; without a rate nothing is taken."""
    if rate is None or not count:
        return bucket
    return Bucket(min(rate.burst, refilled(bucket, rate, now=now) - count), now)
