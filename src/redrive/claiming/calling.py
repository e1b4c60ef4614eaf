"""Requests at a gate: what keeps one out, and what one that passes is charged.

Pure functions of the shared state, as `redrive.claiming.passage`.
"""

from __future__ import annotations

from datetime import datetime

from redrive.claiming.passage import SHUT, Passage, charged
from redrive.model.delivery import Kind
from redrive.model.gate import Call, Gate, HalfOpen, Hold
from redrive.model.limits import Limits
from redrive.policies.gate import calling

__all__ = ["entered", "kept_out"]

_FULL = frozenset({*SHUT, Hold.BLOCKED, Hold.CONCURRENCY, Hold.PROBING})


def kept_out(allowed: Passage) -> Hold | None:
    """Return what keeps a request out that would be a first attempt, if anything does."""
    if allowed.total > 0:
        return None if allowed.first > 0 else Hold.RATE
    return next(one for one in allowed.holds if one in _FULL)


def entered(
    gate: Gate, allowed: Passage, limits: Limits, call: Call, *, now: datetime
) -> tuple[Gate, int]:
    """Return the gate after a request has passed it, and how many retries it may make.

    A probe has none: its failure says of the destination all there is to know.
    """
    is_probe = isinstance(gate.breaker, HalfOpen)
    after = charged(gate, limits, {Kind.FIRST: 1}, held_first=0, now=now)
    if is_probe or limits.concurrency is not None:
        after = calling(after, call)
    return after, 0 if is_probe else min(allowed.retries, allowed.held_first, allowed.paced)
